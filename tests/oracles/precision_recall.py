"""Precision and recall of clusters by counting pairs and points."""


def pairwise_by_loops(classes, clusters):
    n = len(classes)
    pairs = [(classes[i] == classes[j], clusters[i] == clusters[j]) for i in range(n) for j in range(i)]
    of_cluster = [same_class for same_class, same_cluster in pairs if same_cluster]
    of_class = [same_cluster for same_class, same_cluster in pairs if same_class]
    return (sum(of_cluster) / len(of_cluster) if of_cluster else 1.0, sum(of_class) / len(of_class) if of_class else 1.0)


def bcubed_by_loops(classes, clusters):
    precision = recall = 0.0
    n = len(classes)
    for i in range(n):
        mates = [j for j in range(n) if clusters[j] == clusters[i]]
        kin = [j for j in range(n) if classes[j] == classes[i]]
        both = len(set(mates) & set(kin))
        precision += both / len(mates) / n
        recall += both / len(kin) / n
    return precision, recall

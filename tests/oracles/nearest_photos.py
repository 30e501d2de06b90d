"""Brute-force search with plain loops: the most similar first, equal ones by path."""


def nearest_photos(photos, query, top, label=None):
    """(path, cosine) of the `top` photos; `photos` are (path, label, vector) and all vectors have length one."""
    found = []
    for path, own, vector in photos:
        if label is None or own == label:
            total = 0.0
            for x, y in zip(vector, query, strict=True):
                total += float(x) * float(y)
            found.append((-total, path.encode(), path))
    return [(path, -negative) for negative, _, path in sorted(found)[:top]]

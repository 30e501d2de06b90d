"""Small copies of the official layouts, written as the originals are: three images per class, classes of three colors."""

import numpy as np
from PIL import Image
from scipy.io import savemat

PER_CLASS = 3


def save_image(path, seed=None):
    """A small picture that no other seed gives; the seed defaults to the name, so that every path differs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(str(path).encode()) if seed is None else seed)
    Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
    return path


def write_cub(base, n_classes=6):
    names = [f"{i:03d}.Bird_{i}" for i in range(1, n_classes + 1)]
    images = [f"{name}/{name[4:]}_{k:04d}.jpg" for name in names for k in range(PER_CLASS)]
    for image in images:
        save_image(base / "images" / image)
    (base / "classes.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, 1)))
    (base / "images.txt").write_text("".join(f"{i} {image}\n" for i, image in enumerate(images, 1)))
    (base / "image_class_labels.txt").write_text("".join(f"{i} {(i - 1) // PER_CLASS + 1}\n" for i in range(1, len(images) + 1)))
    return base


def write_products(base, n_classes=6):
    image_id = 0
    for split, class_ids in (("train", range(1, n_classes // 2 + 1)), ("test", range(n_classes // 2 + 1, n_classes + 1))):
        lines = ["image_id class_id super_class_id path"]
        for class_id in class_ids:
            for k in range(PER_CLASS):
                image_id += 1
                path = f"{'bicycle' if class_id % 2 else 'chair'}_final/{class_id:012d}_{k}.JPG"
                save_image(base / path)
                lines.append(f"{image_id} {class_id} {1 if class_id % 2 else 2} {path}")
        (base / f"Ebay_{split}.txt").write_text("\n".join(lines) + "\n")
    return base


# In official order, which is not that of the alphabet.
CAR_NAMES = (
    "AM General Hummer SUV 2000",
    "Acura TL Sedan 2012",
    "Acura Integra Type R 2001",
    "Nissan Leaf Hatchback 2012",
    "Nissan 240SX Coupe 1998",
    "Ram C/V Cargo Van Minivan 2012",
)


def annotations(rows, file_field):
    """A struct array as in the devkit: boxes, class, file name."""
    table = np.zeros((1, len(rows)), dtype=[("bbox_x1", "O"), ("class", "O"), (file_field, "O")])
    for position, (name, class_id) in enumerate(rows):
        table[0, position] = (1, np.uint8(class_id), name)
    return {"annotations": table}


def name_cells():
    return {"class_names": np.array(CAR_NAMES, dtype=object)[None]}


def write_car_ims(base):
    """car_ims/000001.jpg and on, class after class, with cars_annos.mat."""
    rows = [(f"car_ims/{n + 1:06d}.jpg", n // PER_CLASS + 1) for n in range(PER_CLASS * len(CAR_NAMES))]
    for name, _ in rows:
        save_image(base / name)
    savemat(base / "cars_annos.mat", annotations(rows, "relative_im_path") | name_cells())
    return base


def write_devkit(base, *, labels_beside=True):
    """cars_train/ and cars_test/, numbered in no order of classes, and the devkit."""
    (base / "devkit").mkdir(parents=True)
    savemat(base / "devkit" / "cars_meta.mat", name_cells())
    class_ids = {"train": [3, 1, 6, 2, 5, 4, 1, 2, 3], "test": [6, 5, 4, 3, 2, 1, 6, 5, 4]}
    files = {"train": base / "devkit" / "cars_train_annos.mat", "test": base / "cars_test_annos_withlabels.mat"}
    for half, ids in class_ids.items():
        rows = [(f"{n:05d}.jpg", class_id) for n, class_id in enumerate(ids, 1)]
        for name, _ in rows:
            save_image(base / f"cars_{half}" / name)
        if half == "train" or labels_beside:
            savemat(files[half], annotations(rows, "fname"))
    return base


def write_folder(base, classes=("ant", "bee", "cow", "dog"), per_class=PER_CLASS):
    for name in classes:
        for k in range(per_class):
            save_image(base / name / f"{k}.png")
    return base

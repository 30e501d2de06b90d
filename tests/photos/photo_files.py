"""Photos in a folder as people keep them, made of soft shapes that a network tells apart."""

import numpy as np
from PIL import Image


def photo(seed, size=(160, 120)):
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def write_photos(root, n, *, per_folder=10):
    """n photos in nested folders; their paths below the root, by path."""
    paths = []
    for i in range(n):
        path = root / f"{i // per_folder:02}" / "deep" / f"{i:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(i).save(path, quality=90)
        paths.append(path.relative_to(root).as_posix())
    return paths

"""Opening image files: what comes out is upright 8-bit RGB, or one line that names the file."""

import io
import pickle
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from facetric.images import ImageError, open_image
from facetric.images.decoding import MAX_PIXELS, decode_image, is_image_file
from images.broken_files import broken_contents, encoded, photo, png_claiming

RED, WHITE = (255, 0, 0), (255, 255, 255)


def colors(image):
    assert image.mode == "RGB"
    return {color for _, color in image.getcolors()}


def saved(path, image, **options):
    image.save(path, **options)
    return path


def test_rgb_comes_back_as_it_was(tmp_path):
    picture = photo(0)
    assert np.array_equal(np.asarray(open_image(saved(tmp_path / "a.png", picture))), np.asarray(picture))


@pytest.mark.parametrize(
    ("suffix", "mode"),
    [
        (suffix, mode)
        for suffix in ("png", "tif", "jpg", "gif", "webp")
        for mode in ("1", "L", "P", "RGB", "CMYK", "RGBA", "LA")
        if (suffix, mode) not in {("png", "CMYK"), ("gif", "CMYK"), ("jpg", "P"), ("jpg", "RGBA"), ("jpg", "LA")}
    ],
)
def test_every_mode_that_a_format_can_hold_becomes_rgb(tmp_path, suffix, mode):
    picture = photo(0).convert("L").convert(mode)
    image = open_image(saved(tmp_path / f"a.{suffix}", picture))
    assert (image.mode, image.size) == ("RGB", picture.size)
    if suffix in ("png", "tif") and mode not in ("1", "CMYK"):
        assert np.array_equal(np.asarray(image.convert("L")), np.asarray(photo(0).convert("L")))


def test_cmyk_jpeg_keeps_its_colors(tmp_path):
    path = saved(tmp_path / "a.jpg", Image.new("CMYK", (32, 32), (0, 255, 255, 0)), quality=100)
    assert np.allclose(np.asarray(open_image(path)).mean(axis=(0, 1)), RED, atol=3)


def test_alpha_is_laid_over_white(tmp_path):
    picture = Image.new("RGBA", (4, 4), (*RED, 255))
    picture.putpixel((0, 0), (0, 0, 0, 0))
    picture.putpixel((1, 0), (0, 0, 0, 128))
    image = open_image(saved(tmp_path / "a.png", picture))
    assert image.getpixel((0, 0)) == WHITE
    assert image.getpixel((1, 0)) == (127, 127, 127)
    assert image.getpixel((2, 2)) == RED


@pytest.mark.parametrize("transparency", [1, bytes([255, 0])])
def test_transparent_palette_entries_become_white(tmp_path, transparency):
    picture = Image.new("P", (4, 4))
    picture.putpalette([*RED, 0, 0, 255])
    picture.putpixel((0, 0), 1)
    image = open_image(saved(tmp_path / "a.png", picture, transparency=transparency))
    assert image.getpixel((0, 0)) == WHITE
    assert image.getpixel((1, 1)) == RED


def test_a_transparent_color_becomes_white(tmp_path):
    image = open_image(saved(tmp_path / "a.png", Image.new("RGB", (4, 4), RED), transparency=RED))
    assert colors(image) == {WHITE}


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bit_is_scaled_not_clipped(tmp_path, suffix):
    values = np.array([[0, 257, 32768, 65535]] * 4, dtype=np.uint16)
    path = tmp_path / f"a.{suffix}"
    if suffix == "pgm":
        path.write_bytes(b"P5\n4 4\n65535\n" + values.astype(">u2").tobytes())
    else:
        Image.fromarray(values).save(path)
    assert np.asarray(open_image(path))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_floating_point_from_0_to_1_is_scaled(tmp_path):
    path = saved(tmp_path / "a.tif", Image.fromarray(np.array([[0, 0.5, 1.0]], dtype=np.float32)))
    assert np.asarray(open_image(path))[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_turns_the_picture_upright(tmp_path, orientation):
    upright = photo(0, (32, 16))
    inverse = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]  # PIL's transposition that a camera would apply
    stored = upright if inverse is None else upright.transpose(inverse)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "a.png", stored, exif=exif)
    assert np.array_equal(np.asarray(open_image(path)), np.asarray(upright))


def test_a_damaged_exif_block_does_not_spoil_the_picture(tmp_path):
    path = saved(tmp_path / "a.jpg", photo(0), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff garbage")
    assert open_image(path).size == (64, 48)


def test_an_animation_gives_its_first_frame(tmp_path):
    first = Image.new("RGB", (8, 8), RED)
    first.save(tmp_path / "a.gif", save_all=True, append_images=[Image.new("RGB", (8, 8), "blue")])
    assert colors(open_image(tmp_path / "a.gif")) == {RED}


def test_a_picture_for_both_eyes_gives_the_first(tmp_path):
    photo(0).save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[photo(1)], quality=95)
    with (tmp_path / "a.jpg").open("rb") as file:
        image, format_name = decode_image(file, tmp_path / "a.jpg")
    assert (image.size, format_name) == ((64, 48), "JPEG")


def test_links_and_odd_names_work(tmp_path):
    real = saved(tmp_path / "Zaunkönig 鳥 [1].png", photo(0))
    (tmp_path / "link.png").symlink_to(real)
    assert open_image(real).size == open_image(str(tmp_path / "link.png")).size == (64, 48)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jpg", True),
        ("A.JPEG", True),
        ("a.webp", True),
        ("._a.jpg", False),
        (".hidden.png", False),
        ("a.txt", False),
        ("jpg", False),
    ],
)
def test_image_files_are_known_by_suffix_unless_hidden(name, expected):
    assert is_image_file(f"some/folder/{name}") is expected


BROKEN = {name: kind for name, (kind, _) in broken_contents().items() if kind not in ("suspicious", "not used")}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gives_one_line_that_names_it(tmp_path, name):
    (tmp_path / name).write_bytes(broken_contents()[name][1])
    with pytest.raises(ImageError) as error:
        open_image(tmp_path / name)
    assert error.value.fault == BROKEN[name]
    message = str(error.value)
    assert message.isprintable()
    assert repr(name)[1:-1] in message
    assert ": " in message  # the way out follows


SOUND = {
    name: encoded(photo(0), name, **options)
    for name, options in {"JPEG": {}, "PNG": {}, "GIF": {}, "BMP": {}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {}}.items()
}


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(SOUND)),
    length=st.floats(0, 1),
    changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=8),
)
def test_damage_of_any_kind_gives_a_picture_or_an_image_error(name, length, changes):
    content = bytearray(SOUND[name])
    for position, value in changes:
        content[int(position**3 * len(content))] = value  # cubed: most of the damage is in the header, where it hurts
    try:
        image, _ = decode_image(io.BytesIO(content[: int(length * len(content))]), Path("a.jpg"))
    except ImageError:
        return
    assert image.mode == "RGB"


def test_a_missing_file_and_a_folder_are_image_errors(tmp_path):
    with pytest.raises(ImageError, match=r"a\.jpg does not exist: restore the file"):
        open_image(tmp_path / "a.jpg")
    with pytest.raises(ImageError, match="is a folder"):
        open_image(tmp_path)
    with pytest.raises(ImageError, match="null"):
        open_image("a\0.jpg")


def test_the_pixel_limit_is_our_own_and_pillows_state_is_left_alone(tmp_path):
    before = (Image.MAX_IMAGE_PIXELS, list(warnings.filters))
    (tmp_path / "a.png").write_bytes(png_claiming(8_001, 8_000))
    with pytest.raises(ImageError, match=f"8,001 × 8,000 pixels; an image may have {MAX_PIXELS:,} at most: shrink it first"):
        open_image(tmp_path / "a.png")
    assert (Image.MAX_IMAGE_PIXELS, list(warnings.filters)) == before


def test_no_warning_leaks_whatever_the_filters(tmp_path):
    (tmp_path / "a.png").write_bytes(png_claiming(10_000, 10_000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ImageError, match="pixels"):
            open_image(tmp_path / "a.png")
    assert caught == []


def test_threads_leave_the_warning_filters_as_they_were(tmp_path):
    path = saved(tmp_path / "a.png", photo(0, (200, 200)))
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [open_image(path) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


def test_an_image_error_survives_pickling(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(photo(0), "JPEG")[:500])
    with pytest.raises(ImageError) as error:
        open_image(tmp_path / "a.jpg")
    copy = pickle.loads(pickle.dumps(error.value))
    assert (type(copy), str(copy), copy.fault) == (ImageError, str(error.value), error.value.fault)

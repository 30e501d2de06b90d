"""Files of vectors that other programs wrote: read without options where columns have usual names, refused in one line else."""

import io

import numpy as np
import pandas
import pytest

from facetric.embedder import Vectors, given_vectors, read_vectors

ROWS = np.random.default_rng(0).normal(size=(20, 8))
NAMES = [f"a text, no. {row}" for row in range(20)]
LABELS = ["odd" if row % 2 else "even" for row in range(20)]


def test_a_plain_array_has_row_numbers_as_names(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    found = read_vectors(tmp_path / "v.npy")
    np.testing.assert_array_equal(found.vectors, ROWS.astype(np.float32))
    assert found.names[:2] == ("#0", "#1")
    assert not len(found.labels)
    assert not found.model


@pytest.mark.parametrize("column", ["vectors", "embedding"])
def test_usual_columns_are_found(tmp_path, column):
    np.savez(tmp_path / "v.npz", **{column: ROWS, "text": NAMES, "label": LABELS})
    table = pandas.DataFrame({column: list(ROWS), "text": NAMES, "label": LABELS})
    table.to_parquet(tmp_path / "v.parquet")
    for name in ("v.npz", "v.parquet"):
        found = read_vectors(tmp_path / name)
        np.testing.assert_array_equal(found.vectors, ROWS.astype(np.float32))
        assert list(found.names) == NAMES
        assert found.labels.tolist() == LABELS


def test_other_columns_are_named(tmp_path):
    table = pandas.DataFrame({"embedding": list(ROWS), "id": range(20), "kind": LABELS, "label": "x"})
    table.to_parquet(tmp_path / "v.parquet")
    found = read_vectors(tmp_path / "v.parquet", names="id", labels="kind")
    assert found.names[:2] == ("0", "1")
    assert found.labels.tolist() == LABELS


@pytest.mark.parametrize("suffix", ["npz", "parquet", "csv"])
def test_what_facetric_embed_writes_is_read_without_options(tmp_path, suffix):
    hashes = tuple(f"{row:032x}" for row in range(20))
    written = Vectors(ROWS.astype(np.float32), tuple(NAMES), hashes=hashes, model="abc")
    written.save(tmp_path / f"v.{suffix}")
    found = read_vectors(tmp_path / f"v.{suffix}")
    np.testing.assert_array_equal(found.vectors, written.vectors)
    assert (found.names, found.hashes, found.model) == (written.names, written.hashes, "abc")


def test_labels_that_pandas_added_to_a_file_of_facetric_are_read_with_its_model(tmp_path):
    hashes = tuple(f"{row:032x}" for row in range(20))
    Vectors(ROWS.astype(np.float32), tuple(NAMES), hashes=hashes, model="abc").save(tmp_path / "v.parquet")
    pandas.read_parquet(tmp_path / "v.parquet").assign(label=LABELS).to_parquet(tmp_path / "labeled.parquet")
    found = read_vectors(tmp_path / "labeled.parquet")
    assert (found.labels.tolist(), found.hashes, found.model) == (LABELS, hashes, "abc")


def damaged(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def parquet(**columns):
    buffer = io.BytesIO()
    pandas.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


def with_row(row, value):
    changed = ROWS.copy()
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("v.npy", npy(ROWS[0]), r"vectors are numbers of shape \(n, dim\); .* float64 of shape \(8,\)"),
        ("v.npy", npy(np.empty((0, 8))), r"of shape \(0, 8\)"),
        ("v.npy", npy(np.array([["a"]])), "vectors are numbers"),
        ("v.npy", npy(with_row(3, np.nan)), "row 3 of .* holds NaN or infinity"),
        ("v.npy", npy(ROWS * 1e300), "row 0 of .* holds NaN or infinity"),
        ("v.npy", npy(with_row(7, 0)), "row 7 of .* holds zeros only"),
        ("v.npy", npy(np.array([{1: 2}], dtype=object)), "holds Python objects, which may run code and are never loaded"),
        ("v.npy", npy(ROWS)[:300], "cannot be read .*: save it again"),
        ("v.npy", b"nothing", "cannot be read"),
        ("v.npz", damaged(vectors=ROWS)[:500], "cannot be read"),
        ("v.npz", damaged(one=ROWS, two=ROWS), "has no column vectors or embedding; it has one, two"),
        ("v.npz", damaged(vectors=ROWS, name=NAMES[:5]), "has 20 vectors and 5 names"),
        ("v.npz", damaged(vectors=ROWS, name=np.array(NAMES, dtype=object)), "Python objects"),
        ("v.parquet", parquet(name=NAMES), "has no column vectors or embedding; it has name"),
        ("v.parquet", parquet(vector=list(ROWS))[:-50], "cannot be read"),
        ("v.parquet", parquet(vector=[*ROWS[:3], ROWS[3, :5]]), "its vectors have from 5 to 8 numbers"),
        ("v.parquet", parquet(vector=[*ROWS[:3], None]), "its vectors have from 0 to 8 numbers"),
        ("v.parquet", parquet(vector=list(ROWS), model=["a", "b"] * 10), "holds vectors of 2 models"),
        ("v.txt", b"1 2 3", "vectors are read from .npy, .npz and .parquet files"),
    ],
)
def test_a_bad_file_is_refused_in_one_clear_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        read_vectors(tmp_path / name)
    assert "\n" not in str(error.value)
    assert name in str(error.value)


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path):
    (tmp_path / "v.parquet").write_bytes(parquet(vector=list(ROWS), label=LABELS))
    with pytest.raises(ValueError, match=r"no column 'lable'; it has vector, label; did you mean 'label'\?"):
        read_vectors(tmp_path / "v.parquet", labels="lable")
    with pytest.raises(ValueError, match="does not exist: pass a file of vectors"):
        read_vectors(tmp_path / "missing.npy")


def test_arrays_are_checked_as_files_are():
    assert given_vectors(ROWS, names=NAMES, labels=[1] * 20).labels.tolist() == [1] * 20
    with pytest.raises(ValueError, match="20 vectors and 3 labels"):
        given_vectors(ROWS, labels=[1, 2, 3])

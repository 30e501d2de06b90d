"""Files are whole or untouched, nothing is left behind, links are not followed, and a record notices every flipped bit."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import processes
from facetric.files import checksummed, part_of, read_checksummed, refuse_links, remove_stale_parts, write_atomically


def part_of_a_dead_process(path):
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    part = part_of(path)
    dead = part.with_name(part.name.replace(f".{os.getpid()}.part", f".{done.stdout.strip()}.part"))
    dead.write_text("half")
    return dead


def test_a_writer_removes_what_a_killed_writer_of_the_same_file_left(tmp_path):
    left, other = part_of_a_dead_process(tmp_path / "a.json"), part_of_a_dead_process(tmp_path / "b.json")
    write_atomically(tmp_path / "a.json", b"{}")
    assert not left.exists()
    assert other.exists()
    remove_stale_parts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_temporary_files_of_living_processes_and_of_other_machines_stay(tmp_path):
    own = part_of(tmp_path / "a.json")
    parent = own.with_name(own.name.replace(f".{os.getpid()}.", f".{os.getppid()}."))
    elsewhere = tmp_path / ".a.json.another-machine.999999999.part"
    for path in (own, parent, elsewhere):
        path.write_text("half")
    remove_stale_parts(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_name_of_any_length_has_a_temporary_name(tmp_path):
    path = tmp_path / ("x" * 250)
    write_atomically(path, b"whole")
    assert path.read_bytes() == b"whole"


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "report.html").symlink_to(tmp_path / "precious")
    write_atomically(tmp_path / "report.html", b"page")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "report.html").read_bytes() == b"page"
    assert not (tmp_path / "report.html").is_symlink()


def test_links_below_a_folder_are_refused_by_name(tmp_path):
    (tmp_path / "run" / "figures").mkdir(parents=True)
    refuse_links(tmp_path / "run")
    (tmp_path / "run" / "figures" / "curves.png").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"symbolic link") as refused:
        refuse_links(tmp_path / "run")
    assert refused.value.errno == errno.ELOOP
    assert refused.value.filename == str(tmp_path / "run" / "figures" / "curves.png")


def test_an_error_names_the_file_that_was_wanted(tmp_path):
    with pytest.raises(OSError, match="missing") as failed:
        write_atomically(tmp_path / "missing" / "a.json", b"{}")
    assert failed.value.filename == str(tmp_path / "missing" / "a.json")


def write_too_much(path):
    try:
        write_atomically(Path(path), bytes(20_000), sync=False)
    except OSError as error:
        print(error.filename)


def test_a_disk_that_is_full_is_named_and_no_part_stays(tmp_path):
    done = processes.command(tmp_path / "small", function="test_files:write_too_much", file_size_limit=10_000)
    assert done.stdout == f"{tmp_path / 'small'}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_sealed_record_notices_every_flipped_bit():
    values = {"threshold": 0.25, "name": "größer", "list": [1, None, True]}
    data = checksummed(values)
    assert read_checksummed(data) == values
    said = []
    for place in range(len(data)):
        for bit in range(8):
            hurt = bytearray(data)
            hurt[place] ^= 1 << bit
            try:
                found = read_checksummed(bytes(hurt))
            except ValueError as error:
                said.append(str(error))
            else:
                assert found == values  # white space, or another spelling of the same
    assert len(said) > 4 * len(data)
    assert all(len(line.splitlines()) == 1 for line in said)


def test_a_record_without_a_checksum_is_read_where_it_may_be_missing():
    assert read_checksummed(b'{"a": 1}', required=False) == {"a": 1}
    with pytest.raises(ValueError, match="no checksum"):
        read_checksummed(b'{"a": 1}')
    with pytest.raises(ValueError, match="checksum is wrong"):  # it has one, under a damaged name
        read_checksummed(checksummed({"a": 1}).replace(b"sha256", b"sha056"), required=False)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_checksummed(b"[" * 100_000)

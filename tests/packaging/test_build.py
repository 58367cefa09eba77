"""The steps around PyInstaller: archives, the package for Debian, the bill of materials, and the checks that follow."""

import shutil
import subprocess
import sys
import tarfile

import check_frozen
import debian
import pytest
import sbom

import build

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a package for Linux")
_lacking = [tool for tool in ("dpkg-deb", "objdump") if not shutil.which(tool)]
with_dpkg = pytest.mark.skipif(bool(_lacking), reason=f"{', '.join(_lacking)}: not installed")


@pytest.fixture
def folder(tmp_path):
    """A frozen folder in small: one real program, one file that only its owner may read."""
    made = tmp_path / "dist" / "greenroom"
    resources = made / "_internal" / "resources"
    resources.mkdir(parents=True)
    shutil.copy(shutil.which("true") or sys.executable, made / "greenroom")
    (made / "greenroom-engine").write_bytes((made / "greenroom").read_bytes())
    (made / "greenroom-engine").chmod(0o700)
    (resources / "model.safetensors").write_bytes(b"\0" * 3000)
    (resources / "model.safetensors").chmod(0o600)
    (made / "_internal" / "liblink.so").symlink_to("resources/model.safetensors")
    return made


def test_without_the_tools_it_says_how_to_get_them(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(build, "_installed", lambda module: module != "PyInstaller")
    assert build.main(["--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "PyInstaller" in told
    assert "--prepare" in told


@linux_only
def test_without_objdump_it_names_the_package_that_brings_it(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "_installed", lambda module: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildError, match="sudo apt install binutils"):
        build.check_tools()


@linux_only
def test_everybody_may_read_what_only_its_maker_could(folder):
    build.set_rights(folder)
    rights = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if not path.is_symlink()}
    assert rights["model.safetensors"] == 0o644
    assert rights["greenroom-engine"] == 0o755


@linux_only
def test_the_same_folder_gives_the_same_tarball_owned_by_root(folder, tmp_path):
    one, two = (build.tarball(folder, tmp_path / name, "greenroom-9") for name in ("one.tar.gz", "two.tar.gz"))
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        entries = {entry.name: entry for entry in archive}
    assert entries["greenroom-9/_internal/liblink.so"].issym()
    assert entries["greenroom-9/greenroom"].mode & 0o111
    assert {(entry.uid, entry.uname) for entry in entries.values()} == {(0, "root")}


@linux_only
@with_dpkg
def test_the_package_installs_where_it_should_and_needs_what_its_programs_need(folder, tmp_path, qapp):
    build.set_rights(folder)
    deb = debian.make_deb(folder, tmp_path, "1.2.3", tmp_path / "work")
    fields = subprocess.run(["dpkg-deb", "--field", deb], capture_output=True, text=True, check=True).stdout
    told = dict(line.split(": ", 1) for line in fields.splitlines() if not line.startswith(" "))
    assert (told["Package"], told["Version"]) == ("greenroom", "1.2.3")
    assert told["Depends"].startswith("libc6 (>= 2."), "the only library that ``true`` needs"
    assert int(told["Installed-Size"]) > 3
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)
    assert (root / "usr/bin/greenroom").resolve() == root / "usr/lib/greenroom/greenroom"
    assert (root / "usr/share/applications/greenroom.desktop").is_file()
    assert (root / "usr/share/metainfo/local.greenroom.greenroom.metainfo.xml").is_file()
    assert (root / "usr/share/icons/hicolor/256x256/apps/greenroom.png").is_file()
    assert "Apache" in (root / "usr/share/doc/greenroom/copyright").read_text()
    control = subprocess.run(["dpkg-deb", "--ctrl-tarfile", deb], capture_output=True, check=True).stdout
    assert b"md5sums" in control
    assert b"postinst" not in control, "what no script does, no removal can leave behind"


@linux_only
@with_dpkg
def test_a_library_that_nobody_brings_stops_the_package():
    with pytest.raises(LookupError, match=r"libnowhere\.so\.7"):
        debian.package_of("libnowhere.so.7", debian.system_libraries())


def test_the_bill_of_materials_keeps_what_was_frozen():
    bill = {
        "metadata": {"component": {"name": "greenroom", "bom-ref": "root"}},
        "components": [{"name": "Markdown_It.Py", "bom-ref": "m"}, {"name": "pip", "bom-ref": "p"}],
        "dependencies": [{"ref": "root", "dependsOn": ["m", "p"]}, {"ref": "m"}, {"ref": "p", "dependsOn": ["m"]}],
    }
    kept = sbom.reduced(bill, ["markdown-it-py"], "1.2.3")
    assert [part["bom-ref"] for part in kept["components"]] == ["m"]
    assert kept["dependencies"] == [{"ref": "root", "dependsOn": ["m"]}, {"ref": "m", "dependsOn": []}]
    assert kept["metadata"]["component"]["version"] == "1.2.3"


def test_the_check_sees_a_folder_that_is_too_big_and_one_that_was_written_to(folder, tmp_path):
    check = check_frozen.Check(folder, tmp_path, tmp_path, largest=10)
    with pytest.raises(check_frozen.Broken, match="0 are allowed"):
        check.check_size()
    assert check.check_untouched() == {}
    (folder / "_internal" / "__pycache__").mkdir()
    with pytest.raises(check_frozen.Broken, match="__pycache__"):
        check.check_untouched()


@linux_only
def test_the_check_wants_the_hook_to_have_counted(folder, tmp_path):
    """A program that writes a glad report, in which nobody's experts were computed."""
    report = '{"ok": true, "expert_hook_calls": 0, "expert_hits": 0, "expert_misses": 0, "steps": []}'
    program = folder / "greenroom"
    program.write_text(f'#!/bin/sh\n[ -z "$PATH" ] || exit 3\necho \'{report}\' > "$2/report.json"\n')
    program.chmod(0o755)
    with pytest.raises(check_frozen.Broken, match="hook never ran"):
        check_frozen.Check(folder, tmp_path, tmp_path, largest=1e9).check_self_test()

"""What is cut from a frozen folder, and what must not be."""

from pathlib import Path

import contents
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    [
        "torch/lib/libtorch_cpu.so",
        "torch/bin/torch_shm_manager",  # torch does not start without it
        "PySide6/QtWidgets.abi3.so",
        "PySide6/Qt/lib/libQt6Core.so.6",
        "PySide6/Qt/lib/libQt6XcbQpa.so.6",
        "PySide6\\Qt6Gui.dll",
        "PySide6/Qt/lib/QtDBus.framework/Versions/A/QtDBus",
        "PySide6/Qt/plugins/platforms/libqxcb.so",
        "PySide6/Qt/plugins/platforms/libqwayland.so",
        "PySide6\\plugins\\platforms\\qwindows.dll",
        "PySide6/Qt/plugins/platforms/libqcocoa.dylib",
        "PySide6/Qt/plugins/platforminputcontexts/libibusplatforminputcontextplugin.so",  # Chinese, Japanese, Korean
        "PySide6\\plugins\\styles\\qmodernwindowsstyle.dll",
        "transformers/models/mixtral/modeling_mixtral.py",
        "resources/models/demo-1-2/config.json",
    ],
)
def test_what_it_needs_stays(name):
    assert contents.wanted(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch/test/anything",
        "torch/bin/protoc",
        "torch/include/ATen/ATen.h",
        "torch/lib/libjitbackend_test.so",
        "PySide6/Qt/lib/libQt6Qml.so.6",
        "PySide6/Qt/lib/libQt6Quick.so.6",
        "PySide6/QtNetwork.abi3.so",
        "PySide6\\Qt6Pdf.dll",
        "PySide6/Qt/lib/QtWebEngineCore.framework/Versions/A/QtWebEngineCore",
        "PySide6/Qt/plugins/sqldrivers/libqsqlite.so",
        "PySide6/Qt/plugins/platformthemes/libqgtk3.so",
        "PySide6/Qt/plugins/platforms/libqeglfs.so",
        "PySide6/Qt/translations/qtbase_de.qm",
    ],
)
def test_what_it_does_not_need_is_cut(name):
    assert not contents.wanted(name)


def test_every_module_of_qt_that_the_window_imports_stays():
    imported = {
        line.split("PySide6.Qt")[1].split()[0]
        for file in (ROOT / "app").rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if line.strip().startswith("from PySide6.Qt")
    }
    assert {"Core", "Widgets"} <= imported
    assert [name for name in sorted(imported) if not contents.wanted(f"PySide6/Qt{name}.abi3.so")] == []


def test_the_demos_recipe_goes_in_and_its_training_does_not():
    inside = {
        f"{folder}/{Path(file).name}".replace("\\", "/") for file, folder in contents.resources(ROOT / "resources")
    }
    assert {
        "resources/demo/recipe.json",
        "resources/demo/recipe.safetensors",
        "resources/demo/model-README.md",
        "resources/demo/model-LICENSE",
        "resources/icons/greenroom.png",
        "resources/fonts/Inter-Regular.otf",
        "resources/fonts/OFL-Inter.txt",
    } <= inside
    assert [name for name in inside if name.endswith((".py", ".gz", "prompts.json"))] == []


def test_every_model_of_transformers_is_imported_ahead_and_its_makers_tools_are_not():
    assert contents.wanted_module("transformers.models.olmoe.modeling_olmoe")
    assert contents.wanted_module("transformers.models.olmoe.configuration_olmoe")
    assert not contents.wanted_module("transformers.models.olmoe.modular_olmoe")
    assert not contents.wanted_module("transformers.models.olmoe.convert_olmoe_weights_to_hf")
    assert not contents.wanted_module("transformers.cli.serve")


def test_nothing_that_is_excluded_is_used_by_the_program_itself():
    used = {
        line.split()[1]
        for top in ("app", "engine")
        for file in (ROOT / top).rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if line.strip().startswith(("import ", "from ")) and len(line.split()) > 1
    }
    for excluded in contents.EXCLUDED_MODULES:
        assert not [name for name in used if name == excluded or name.startswith(excluded + ".")], excluded


def test_a_library_goes_when_nobody_is_linked_with_it_any_more():
    imports = {
        "PySide6/Qt/plugins/platforms/libqxcb.so": ["libQt6Gui.so.6", "libxcb.so.1"],
        "PySide6/Qt/lib/libQt6Gui.so.6": ["libz.so.1"],
        "libxcb.so.1": ["libXau.so.6"],
        "libXau.so.6": [],
        "libz.so.1": [],
        "libgtk-3.so.0": ["libpango-1.0.so.0"],  # its plugin was cut
        "libpango-1.0.so.0": [],
        "libpython3.11.so.1.0": ["libz.so.1"],  # the program itself is linked with it
    }
    assert set(imports) - contents.needed(imports) == {"libgtk-3.so.0", "libpango-1.0.so.0"}

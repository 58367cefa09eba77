"""From which language into which: two boxes beside the message, for models that translate."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QLocale, QSignalBlocker, Qt, Signal, Slot
from PySide6.QtWidgets import QCompleter, QHBoxLayout, QPushButton, QWidget

from app.choice import Choice
from app.panels.parts import label, plain_tip
from app.theme import Theme, space
from engine.messages import Language


class Languages(QWidget):
    """Emits ``changed`` with both codes when the user chose one. A box is searched by typing into it."""

    changed = Signal(str, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.source = self._box(theme, self.tr("Language of the text"))
        self.target = self._box(theme, self.tr("Language of the translation"))
        self.swap = QPushButton("⇄", self)
        self.swap.setProperty("kind", "quiet")
        self.swap.setAccessibleName(self.tr("Swap the languages"))
        self.swap.setToolTip(plain_tip(self.swap.accessibleName()))
        self.swap.clicked.connect(self._swap)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(space(2))
        for text, box in ((self.tr("From"), self.source), (self.tr("into"), self.target)):
            name = label(text, role="muted")
            name.setBuddy(box)
            row.addWidget(name)
            row.addWidget(box, 1)
            if box is self.source:
                row.addWidget(self.swap)
        row.addStretch(1)
        self.hide()

    def _box(self, theme: Theme, name: str) -> Choice:
        box = Choice(theme)
        box.setParent(self)
        box.setAccessibleName(name)
        box.setEditable(True)
        box.setInsertPolicy(Choice.InsertPolicy.NoInsert)
        box.setMinimumContentsLength(14)
        box.setSizeAdjustPolicy(Choice.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        completer = box.completer()
        assert completer is not None
        completer.setCompletionMode(QCompleter.CompletionMode.PopupCompletion)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        box.activated.connect(self._tell)
        line = box.lineEdit()
        assert line is not None
        line.editingFinished.connect(self._settle)
        return box

    def offer(self, languages: Sequence[Language], source: str, target: str) -> None:
        """Show these, with two of them chosen; with none, nothing is shown."""
        named = sorted((name_of(language), language.code) for language in languages)
        codes = [code for _, code in named]
        source = (
            source if source in codes else next((code for code in codes if code[:2] == "en"), codes[0] if codes else "")
        )
        others = [code for code in codes if code != source] or codes
        own = QLocale.system().language()
        ours = (code for code in others if QLocale.codeToLanguage(code.partition("_")[0]) == own)
        target = target if target in codes else next(ours, others[0] if others else "")
        for box, chosen in ((self.source, source), (self.target, target)):
            with QSignalBlocker(box):
                if [box.itemData(row) for row in range(box.count())] != codes:
                    box.clear()
                    for name, code in named:
                        box.addItem(name, code)
                box.setCurrentIndex(codes.index(chosen) if chosen in codes else -1)
                line = box.lineEdit()
                assert line is not None
                line.setCursorPosition(0)  # of a long name, the beginning is shown
        self.setVisible(bool(codes))

    @property
    def chosen(self) -> tuple[str, str]:
        """Both codes; empty where there are no languages."""
        return str(self.source.currentData() or ""), str(self.target.currentData() or "")

    @Slot()
    def _swap(self) -> None:
        source, target = self.source.currentIndex(), self.target.currentIndex()
        self.source.setCurrentIndex(target)
        self.target.setCurrentIndex(source)
        self._tell()

    @Slot()
    def _tell(self) -> None:
        self.changed.emit(*self.chosen)

    @Slot()
    def _settle(self) -> None:
        """What was typed and is no language goes back to the one that is chosen."""
        for box in (self.source, self.target):
            row = box.findText(box.currentText(), Qt.MatchFlag.MatchFixedString)
            if row < 0:
                box.setEditText(box.itemText(box.currentIndex()))
            elif row != box.currentIndex():
                box.setCurrentIndex(row)
                self._tell()


def name_of(language: Language) -> str:
    """ "eng_Latn" -> "English (Latin)"; the code itself where Qt has no name for it."""
    if language.name != language.code:
        return language.name
    tongue, _, script = language.code.partition("_")
    known = QLocale.codeToLanguage(tongue)
    if known in (QLocale.Language.AnyLanguage, QLocale.Language.C):
        return language.code
    written = QLocale.codeToScript(script)
    name = QLocale.languageToString(known)
    return f"{name} ({QLocale.scriptToString(written)})" if written != QLocale.Script.AnyScript else name

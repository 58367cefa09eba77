"""The progress window drawn with tkinter, which most Pythons bring along. See window_state.py for what it is told."""

from __future__ import annotations

import contextlib
import sys
import time
import tkinter
import tkinter.font
from collections.abc import Callable
from typing import Literal

import window_state
from window_state import AGAIN, HEIGHT, LINGER, WIDTH, Feed, State

_TICK = 60  # ms
_PAD = 28
_ROWS_TOP, _ROW = 112, 34
_BAR_TOP = 288
# The icon's nine squares: who is lit in turn. At rest it is the icon.
_DANCE = ((2, 4, 8), (5, 1, 3), (0, 7, 4), (6, 2, 5), (3, 8, 1))


class ProgressWindow:
    """One canvas that is drawn anew whenever something changed, and the buttons below it."""

    def __init__(self) -> None:
        _sharp_on_windows()
        self.root = tkinter.Tk(baseName="greenroom", className="greenroom")  # X11: the desktop entry's name
        self.root.withdraw()
        self.state, self.feed, self.code = State(), Feed(), 0
        self.colors = window_state.colors()
        self.scale = max(1.0, self.root.winfo_fpixels("1i") / 96) if sys.platform != "darwin" else 1.0
        family = self._family()
        self.fonts = {
            "heading": tkinter.font.Font(self.root, family=family, size=-self.px(19), weight="bold"),
            "body": tkinter.font.Font(self.root, family=family, size=-self.px(14)),
            "small": tkinter.font.Font(self.root, family=family, size=-self.px(12)),
        }
        self.canvas = tkinter.Canvas(
            self.root, width=self.px(WIDTH), height=self.px(HEIGHT), bg=self.colors["window"], highlightthickness=0
        )
        self.canvas.pack()
        self.buttons: list[_Button] = []
        self.text: tkinter.Text | None = None
        self._drawn_word = ""
        self._ended = False
        self._place()
        self._draw()
        self._show_buttons([("Stop", False, self.close)])
        self.root.protocol("WM_DELETE_WINDOW", self.close)
        self.root.deiconify()
        self.root.update()
        window_state.shown()
        self.root.after(_TICK, self._tick)

    def px(self, size: float) -> int:
        """Pixels of this screen for pixels at 96 dpi."""
        return round(size * self.scale)

    def close(self, code: int = 0) -> None:
        """End with this exit code."""
        self.code = code
        self.root.destroy()

    def _tick(self) -> None:
        messages, ended = self.feed.take()
        for message in messages:
            self.state.apply(message, time.monotonic())
        if ended and not self._ended and not self.state.last_word:
            self._ended = True
            self.root.after(LINGER if self.state.opening else 0, self.close)
        self._draw()
        if self.state.last_word != self._drawn_word:
            self._drawn_word = self.state.last_word
            self._show_last_word()
        self.root.after(_TICK, self._tick)

    def _draw(self) -> None:
        canvas, colors, state = self.canvas, self.colors, self.state
        canvas.delete("all")
        self._icon(self.px(_PAD), self.px(_PAD), self.px(60))
        left = self.px(_PAD + 60 + 20)
        canvas.create_text(
            left, self.px(44), text=state.heading, anchor="w", font=self.fonts["heading"], fill=colors["text"]
        )
        canvas.create_text(
            left, self.px(71), text=state.below, anchor="w", font=self.fonts["body"], fill=colors["text_muted"]
        )
        if state.last_word:
            return
        now = time.monotonic()
        for number, row in enumerate(state.rows.values()):
            middle = self.px(_ROWS_TOP + _ROW * number + _ROW / 2)
            self._mark(self.px(_PAD + 8), middle, row.status)
            strong = row.status == "running"
            canvas.create_text(
                self.px(_PAD + 30),
                middle,
                text=row.label,
                anchor="w",
                font=self.fonts["body"],
                fill=colors["text" if strong else "text_muted"],
            )
            canvas.create_text(
                self.px(WIDTH - _PAD),
                middle,
                text=row.passed(now),
                anchor="e",
                font=self.fonts["small"],
                fill=colors["text_faint"],
            )
        self._bar(now)
        self._small(state.detail, _BAR_TOP - 10, "sw", "text")
        self._small(state.why, _BAR_TOP + 16, "nw", "text_muted")

    def _small(self, text: str, y: int, anchor: Literal["sw", "nw"], color: str) -> None:
        self.canvas.create_text(
            self.px(_PAD),
            self.px(y),
            text=text,
            anchor=anchor,
            width=self.px(WIDTH - 2 * _PAD),
            font=self.fonts["small"],
            fill=self.colors[color],
        )

    def _icon(self, x: int, y: int, side: int) -> None:
        """The icon, its experts taking turns while work goes on."""
        working = not self.state.last_word and not self.state.opening
        lit = _DANCE[int(time.monotonic() / 0.6) % len(_DANCE)] if working else _DANCE[0]
        self._rounded(x, y, x + side, y + side, side * 0.22, "#14181a", "#2c3437")
        square, gap = round(side * 0.18), max(2, round(side * 0.055))
        edge = (side - 3 * square - 2 * gap) // 2
        for number in range(9):
            left = x + edge + (number % 3) * (square + gap)
            top = y + edge + (number // 3) * (square + gap)
            color = ("#fdd577" if number == lit[2] else "#48c299") if number in lit else "#24413a"
            self._rounded(left, top, left + square, top + square, square * 0.25, color)

    def _mark(self, x: int, y: int, status: str) -> None:
        colors, r = self.colors, self.px(7)
        if status == "done":
            points = [x - r * 0.7, y, x - r * 0.1, y + r * 0.6, x + r * 0.8, y - r * 0.6]
            self.canvas.create_line(
                points, fill=colors["accent"], width=self.px(2), capstyle="round", joinstyle="round"
            )
        elif status == "running":
            self.canvas.create_oval(x - r + 2, y - r + 2, x + r - 2, y + r - 2, fill=colors["accent"], outline="")
        else:
            self.canvas.create_oval(x - r + 2, y - r + 2, x + r - 2, y + r - 2, outline=colors["text_faint"])

    def _bar(self, now: float) -> None:
        left, right, top = self.px(_PAD), self.px(WIDTH - _PAD), self.px(_BAR_TOP)
        bottom = top + self.px(4)
        self.canvas.create_rectangle(left, top, right, bottom, fill=self.colors["border"], outline="")
        if self.state.share is None:  # no end is known: a light that walks
            width = (right - left) // 4
            start = left - width + int((now / 1.6 % 1) * (right - left + width))
            left, right = max(left, start), min(right, start + width)
        else:
            right = left + round((right - left) * min(1.0, self.state.share))
        if right > left:
            self.canvas.create_rectangle(left, top, right, bottom, fill=self.colors["accent"], outline="")

    def _rounded(
        self, left: float, top: float, right: float, bottom: float, r: float, fill: str, outline: str = ""
    ) -> None:
        # a smooth polygon is straight between points that come twice
        corners = (
            *(left + r, top, left + r, top, right - r, top, right - r, top, right, top),
            *(right, top + r, right, top + r, right, bottom - r, right, bottom - r, right, bottom),
            *(right - r, bottom, right - r, bottom, left + r, bottom, left + r, bottom, left, bottom),
            *(left, bottom - r, left, bottom - r, left, top + r, left, top + r, left, top),
        )
        self.canvas.create_polygon(corners, smooth=True, fill=fill, outline=outline)

    def _show_last_word(self) -> None:
        self.root.bind("<Escape>", lambda _: self.close())  # not before: a stray key must not stop what works
        again, log = self.state.again, self.state.log
        self._show_buttons(
            [
                *([("Try again", True, lambda: self.close(AGAIN))] if again else []),
                ("Close", not again, self.close),
                *([("Open the log", False, lambda: window_state.open_file(log))] if log else []),
                ("Copy", False, self._copy),
            ]
        )
        colors = self.colors
        self.text = tkinter.Text(
            self.root,
            wrap="word",
            font=self.fonts["body"],
            bg=colors["surface"],
            fg=colors["text"],
            selectbackground=colors["accent"],
            selectforeground=colors["on_accent"],
            relief="flat",
            highlightthickness=0,
            padx=self.px(14),
            pady=self.px(12),
            spacing2=self.px(3),
            spacing3=self.px(3),
        )
        self.text.insert("1.0", self.state.last_word)
        self.text.configure(state="disabled")  # it can still be selected and copied
        top = 112
        self.text.place(
            x=self.px(_PAD), y=self.px(top), width=self.px(WIDTH - 2 * _PAD), height=self.px(HEIGHT - top - 76)
        )
        self.root.lift()
        self.root.bell()

    def _copy(self) -> None:
        self.root.clipboard_clear()
        self.root.clipboard_append(self.state.to_copy())
        self.buttons[-1].configure(text="Copied")

    def _show_buttons(self, wanted: list[tuple[str, bool, Callable[[], None]]]) -> None:
        """Put these at the lower right, the first one outermost."""
        for button in self.buttons:
            button.destroy()
        self.buttons = [_Button(self, *each) for each in wanted]
        right = self.px(WIDTH - _PAD)
        for button in self.buttons:
            button.place(x=right, y=self.px(HEIGHT - 24), anchor="se")
            self.root.update_idletasks()
            right -= button.winfo_reqwidth() + self.px(10)
        if len(wanted) > 1:  # a stray Enter must not stop what works
            self.buttons[0].focus_set()

    def _family(self) -> str:
        if sys.platform in ("win32", "darwin"):
            return str(tkinter.font.nametofont("TkDefaultFont").actual("family"))
        there = set(tkinter.font.families(self.root))
        return next((name for name in window_state.FAMILIES if name in there), "sans-serif")

    def _place(self) -> None:
        self.root.title("Greenroom")
        self.root.resizable(False, False)
        self.root.configure(bg=self.colors["window"])
        picture = tkinter.PhotoImage(master=self.root, file=str(window_state.ICON / "greenroom.png"))
        self.root.iconphoto(True, picture)
        width, height = self.px(WIDTH), self.px(HEIGHT)
        x = (self.root.winfo_screenwidth() - width) // 2
        y = (self.root.winfo_screenheight() - height) // 3
        self.root.geometry(f"{width}x{height}+{x}+{y}")


class _Button(tkinter.Label):
    """A flat button in the program's colours, for mouse and keyboard; a native one cannot be coloured everywhere."""

    def __init__(self, window: ProgressWindow, text: str, primary: bool, act: Callable[[], None]) -> None:
        colors = window.colors
        self._rest = colors["accent" if primary else "surface"]
        super().__init__(
            window.root,
            text=text,
            font=window.fonts["body"],
            bg=self._rest,
            fg=colors["on_accent" if primary else "text"],
            padx=window.px(16),
            pady=window.px(7),
            takefocus=1,
            cursor="hand2",
            highlightthickness=2,
            highlightbackground=self._rest,
            highlightcolor=colors["text" if primary else "accent"],
        )
        for event in ("<Button-1>", "<Return>", "<KP_Enter>", "<space>"):
            self.bind(event, lambda _: act())


def _sharp_on_windows() -> None:
    """Without this, Windows draws the window small and blows it up."""
    if sys.platform == "win32":
        import ctypes

        with contextlib.suppress(AttributeError, OSError):  # before Windows 8.1
            ctypes.windll.shcore.SetProcessDpiAwareness(1)


def main() -> int:
    """Show the window until it is closed; its exit code."""
    try:
        window = ProgressWindow()
    except tkinter.TclError as error:
        print(f"no window: {error}", file=sys.stderr)
        return 1
    window.root.mainloop()
    return window.code


if __name__ == "__main__":
    sys.exit(main())

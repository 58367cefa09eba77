"""The signs of LaTeX mathematics, by the names they have there. Plain data."""

# ruff: noqa: RUF001  signs that look like others are what this is about
from __future__ import annotations

from typing import Literal

Kind = Literal["ord", "bin", "rel", "open", "close", "punct", "name", "big"]
Look = Literal["italic", "roman", "bold", "bolditalic", "mono", "sans"]


def _table(kind: Kind, text: str) -> dict[str, tuple[str, Kind]]:
    words = text.split()
    return {name: (sign, kind) for name, sign in zip(words[::2], words[1::2], strict=True)}


SYMBOLS: dict[str, tuple[str, Kind]] = {
    **_table(
        "ord",
        "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ "
        "lambda λ mu μ nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ "
        "varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ "
        "Omega Ω infty ∞ partial ∂ nabla ∇ forall ∀ exists ∃ nexists ∄ emptyset ∅ varnothing ∅ hbar ℏ ell ℓ Re ℜ "
        "Im ℑ aleph ℵ wp ℘ angle ∠ triangle △ prime ′ degree ° dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ neg ¬ lnot ¬ "
        "top ⊤ bot ⊥ square □ Box □ blacksquare ■ qed ∎ dagger † checkmark ✓ star ⋆ clubsuit ♣ diamondsuit ♦ "
        "heartsuit ♥ spadesuit ♠ imath ı jmath ȷ complement ∁ backslash \\ therefore ∴ because ∵ copyright ©",
    ),
    **_table(
        "bin",
        "pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ circ ∘ bullet • oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ cup ∪ cap ∩ "
        "setminus ∖ land ∧ wedge ∧ lor ∨ vee ∨ sqcup ⊔ sqcap ⊓ diamond ⋄ uplus ⊎ bmod mod wr ≀ amalg ⨿",
    ),
    **_table(
        "rel",
        "leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ propto ∝ ll ≪ gg ≫ in ∈ notin ∉ "
        "ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ supsetneq ⊋ nsubseteq ⊈ sqsubseteq ⊑ to → "
        "rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ "
        "impliedby ⟸ iff ⟺ longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹ mapsto ↦ longmapsto ⟼ uparrow ↑ "
        "downarrow ↓ updownarrow ↕ hookrightarrow ↪ rightharpoonup ⇀ rightleftharpoons ⇌ leadsto ⇝ nearrow ↗ "
        "searrow ↘ mid ∣ nmid ∤ parallel ∥ perp ⊥ vdash ⊢ models ⊨ vDash ⊨ doteq ≐ triangleq ≜ coloneqq ≔ "
        "lesssim ≲ gtrsim ≳ prec ≺ succ ≻ preceq ⪯ succeq ⪰ asymp ≍ colon : leqslant ⩽ geqslant ⩾ vert | gtrless ≷",
    ),
    **_table("open", "lbrace { { { langle ⟨ lfloor ⌊ lceil ⌈ lvert | lVert ‖ lbrack ["),
    **_table("close", "rbrace } } } rangle ⟩ rfloor ⌋ rceil ⌉ rvert | rVert ‖ rbrack ]"),
    **_table("ord", "% % $ $ # # & & _ _ | ‖ Vert ‖ S §"),
}

BIG: dict[str, str] = {
    "sum": "∑",
    "prod": "∏",
    "coprod": "∐",
    "int": "∫",
    "iint": "∬",
    "iiint": "∭",
    "oint": "∮",
    "bigcup": "⋃",
    "bigcap": "⋂",
    "bigvee": "⋁",
    "bigwedge": "⋀",
    "bigoplus": "⨁",
    "bigotimes": "⨂",
    "bigodot": "⨀",
    "bigsqcup": "⨆",
}

_NAMES = (
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp lim max min sup inf det dim ker "
    "gcd lcm deg arg hom Pr mod argmax argmin tr rank span sgn diag Var Cov"
)
NAMES: dict[str, str] = {name: name for name in _NAMES.split()}
NAMES |= {"limsup": "lim sup", "liminf": "lim inf"}

SPACES: dict[str, float] = {
    ",": 0.17,
    "thinspace": 0.17,
    ":": 0.22,
    ">": 0.22,
    ";": 0.28,
    "!": -0.17,
    " ": 0.3,
    "quad": 1.0,
    "qquad": 2.0,
    "enspace": 0.5,
}

# name -> the mark, and whether it stands below
ACCENTS: dict[str, tuple[str, bool]] = {
    "hat": ("ˆ", False),
    "widehat": ("ˆ", False),
    "tilde": ("˜", False),
    "widetilde": ("˜", False),
    "bar": ("‾", False),
    "overline": ("‾", False),
    "vec": ("→", False),
    "overrightarrow": ("→", False),
    "overleftarrow": ("←", False),
    "dot": ("˙", False),
    "ddot": ("¨", False),
    "check": ("ˇ", False),
    "breve": ("˘", False),
    "acute": ("´", False),
    "grave": ("`", False),
    "mathring": ("˚", False),
    "underline": ("‾", True),
    "overbrace": ("{", False),
    "underbrace": ("{", True),
}

DELIMITERS: dict[str, str] = {
    **{sign: sign for sign in "()[]|/"},
    ".": "",
    "<": "⟨",
    ">": "⟩",
    "\\{": "{",
    "\\}": "}",
    "\\|": "‖",
    "\\vert": "|",
    "\\Vert": "‖",
    "\\lvert": "|",
    "\\rvert": "|",
    "\\lVert": "‖",
    "\\rVert": "‖",
    "\\langle": "⟨",
    "\\rangle": "⟩",
    "\\lfloor": "⌊",
    "\\rfloor": "⌋",
    "\\lceil": "⌈",
    "\\rceil": "⌉",
    "\\lbrace": "{",
    "\\rbrace": "}",
    "\\lbrack": "[",
    "\\rbrack": "]",
    "\\backslash": "\\",
    "\\uparrow": "↑",
    "\\downarrow": "↓",
}


def _letters(first_upper: int, first_lower: int, exceptions: str = "") -> dict[str, str]:
    table = {chr(65 + n): chr(first_upper + n) for n in range(26)}
    if first_lower:
        table |= {chr(97 + n): chr(first_lower + n) for n in range(26)}
    words = exceptions.split()
    return table | dict(zip(words[::2], words[1::2], strict=True))


_DOUBLE = _letters(0x1D538, 0x1D552, "C ℂ H ℍ N ℕ P ℙ Q ℚ R ℝ Z ℤ") | {"1": "𝟙"}
_SCRIPT = _letters(0x1D49C, 0x1D4B6, "B ℬ E ℰ F ℱ H ℋ I ℐ L ℒ M ℳ R ℛ e ℯ g ℊ o ℴ")
_FRAKTUR = _letters(0x1D504, 0x1D51E, "C ℭ H ℌ I ℑ R ℜ Z ℨ")

# how letters look, or which letters stand for them
ALPHABETS: dict[str, Look | dict[str, str]] = {
    "mathrm": "roman",
    "mathnormal": "italic",
    "mathit": "italic",
    "mathbf": "bold",
    "bm": "bolditalic",
    "boldsymbol": "bolditalic",
    "mathsf": "sans",
    "mathtt": "mono",
    "mathbb": _DOUBLE,
    "mathcal": _SCRIPT,
    "mathscr": _SCRIPT,
    "mathfrak": _FRAKTUR,
}

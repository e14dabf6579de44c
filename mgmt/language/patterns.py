"""Regular expressions and SIMILAR TO, checked when a policy is read and written so that both databases read them alike.

A pattern is a text that is written out, of what the dialects have in common: characters, ``.``, classes, groups, ``|``,
``* + ? {m,n}``, ``^`` and ``$``; letters and digits are those of ASCII.  Whatever else it holds is refused, also what
one of the databases would take: references back, looking ahead and lazy quantifiers have no meaning in linear time.

What it is not: a matcher; that is each database's own (see ``mgmt.state.patterns``).
"""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, hexdigits, whitespace

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.language.tree_types import mark
from mgmt.source import SourceText
from mgmt.state.patterns import MATCHES
from mgmt.state.schema import SqlType
from mgmt.state.text_limits import LONGEST, limited
from mgmt.tokens import position_of

OPERATORS = (exp.RegexpLike, exp.RegexpILike, exp.SimilarTo)
_KNOWN = "known are . [a-z] [^...] ( ) | * + ? {m,n} ^ $ \\d \\w \\s and \\ before other signs"
_QUANTIFIERS = "*+?{"
_SPECIAL = "\\.[]{}()*+?|^$"
_IN_CLASSES = "\\[]^"
_SIGNS_OF_CONTROL: Mapping[str, str] = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_WORD = f"{ascii_letters}{digits}_"
_SETS: Mapping[str, str] = {"d": digits, "w": _WORD, "s": whitespace}
_NAMED: Mapping[str, str] = {
    "alpha": ascii_letters,
    "digit": digits,
    "alnum": ascii_letters + digits,
    "lower": ascii_lowercase,
    "upper": ascii_uppercase,
    "space": whitespace,
    "blank": " \t",
    "xdigit": hexdigits,
}
_MOST_STEPS = 100_000_000
"""Of one match, of which SQLite makes 300 millions in a second."""
_MOST_TIMES, _LARGEST, _DEEPEST = 100, 400, 20
"""Of {m,n}; of characters when each of these is written as often as it says; of groups."""


class RefusedPatternError(Exception):
    """What a pattern has that is not common to both databases; where it stands, who wrote it knows."""


def write_out_patterns(tree: exp.Expr, text: SourceText) -> None:
    """Calls in place of the operators inside of the tree.  UnsupportedConstructError for other patterns."""
    for node in reversed(list(tree.find_all(*OPERATORS))):
        pattern = node.expression.unnest() if isinstance(node.expression, exp.Paren) else node.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string or node.args.get("flag") is not None:
            raise UnsupportedConstructError(
                "cannot be encoded: a pattern that is computed, or has flags",
                position=position_of(node, text),
                hint="write the pattern out: name ~ '^disk-[0-9]+$'; ~* ignores case",
            )
        if isinstance(node.parent, exp.Escape):
            raise UnsupportedConstructError(
                "cannot be encoded: SIMILAR TO with ESCAPE",
                position=position_of(node, text),
                hint="a backslash takes a sign as it is",
            )
        try:
            similar, ignore_case = isinstance(node, exp.SimilarTo), isinstance(node, exp.RegexpILike)
            written, most = written_pattern(pattern.name, similar=similar, ignore_case=ignore_case)
        except RefusedPatternError as reason:
            raise UnsupportedConstructError(
                f"cannot be encoded: {reason} in the pattern {pattern.name[:40]!r}",
                position=position_of(pattern, text),
                hint=_KNOWN,
            ) from reason
        operand = mark(limited(node.this, most), SqlType.TEXT)
        call = exp.Anonymous(this=MATCHES, expressions=[exp.Literal.string(written), operand])
        call.meta.update(node.meta)
        node.replace(mark(call, SqlType.BOOLEAN))


def written_pattern(pattern: str, *, similar: bool = False, ignore_case: bool = False) -> tuple[str, int]:
    """A regular expression, or what stands after SIMILAR TO, as both databases read it alike.

    And in a text of how many characters it may be looked for: SQLite's matcher takes a time that grows with the square
    of the pattern, for each of them.

    Raises RefusedPatternError.
    """
    read, size = _Pattern(pattern, ignore_case=ignore_case, similar=similar).read()
    most = min(LONGEST, _MOST_STEPS // max(1, size, len(pattern)) ** 2)
    return f"^({read})$" if similar else read, most


class _Pattern:
    """Reads one pattern once, and writes it as it goes.

    Each part comes with its size: of how many characters it is when what is repeated is written as often as it says.
    """

    def __init__(self, text: str, *, ignore_case: bool = False, similar: bool = False) -> None:
        self._text = text
        self._place = 0
        self._depth = 0
        self._begins = self._ends = 0  # ^ and $ so far
        self._ignore_case = ignore_case
        self._similar = similar

    def read(self) -> tuple[str, int]:
        found, size = self._alternatives()
        if self._place < len(self._text):
            raise RefusedPatternError("a ) without its (")
        if size > _LARGEST:
            raise RefusedPatternError(f"more than {_LARGEST} characters, with what is repeated,")
        # In SQLite a ^ that begins the whole text stands before all alternatives: ^a|b would be ^(a|b).
        return f"({found})" if found.startswith("^") else found, size

    def _next(self) -> str:
        return self._text[self._place : self._place + 1]

    def _follows(self, signs: str) -> bool:
        """Whether one of these is next."""
        return self._next() != "" and self._next() in signs

    def _take(self) -> str:
        found = self._next()
        self._place += 1
        return found

    def _alternatives(self) -> tuple[str, int]:
        parts, sizes = [], 0
        while True:
            part, size = self._sequence()
            parts.append(part)
            sizes += size + 1
            if self._next() != "|":
                return "|".join(parts), sizes
            self._take()

    def _sequence(self) -> tuple[str, int]:
        found, sizes = "", 0
        while self._next() and not self._follows("|)"):
            begins, ends = self._begins, self._ends
            part, size = self._repeated()
            # SQLite takes the end for a sign that is read, after which no other place of none can be.
            if self._begins > begins and found:
                raise RefusedPatternError("^ with something before it")
            if self._ends > ends and self._next() and not self._follows("|)"):
                raise RefusedPatternError("$ with something after it")
            found += part
            sizes += size
            if sizes > _LARGEST:
                raise RefusedPatternError(f"more than {_LARGEST} characters, with what is repeated,")
        return found, sizes

    def _repeated(self) -> tuple[str, int]:
        anchors = self._begins + self._ends
        atom, size = self._atom()
        if not self._follows(_QUANTIFIERS):
            return atom, size
        if self._begins + self._ends > anchors:
            raise RefusedPatternError("^ or $ in what is repeated")
        quantifier = self._take()
        if quantifier != "{":
            made = atom + quantifier
        else:
            least, most = self._times()
            size *= max(least, most or 0, 1)
            made = _times(atom, least, most)
        if self._follows(_QUANTIFIERS):
            raise RefusedPatternError("a quantifier after a quantifier")
        return made, size + 1

    def _times(self) -> tuple[int, int | None]:
        """How often at least and at most, after the brace."""
        end = self._text.find("}", self._place)
        least, comma, most = self._text[self._place : max(end, self._place)].partition(",")
        known = all(part.isascii() and part.isdigit() and len(part) <= 3 for part in (least, most or "0"))
        if end < 0 or not known:
            raise RefusedPatternError("{ without numbers and }")
        self._place = end + 1
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if max(low, high or 0) > _MOST_TIMES or (high is not None and high < low):
            raise RefusedPatternError(f"{{m,n}} with other numbers than 0 to {_MOST_TIMES}, in order,")
        return low, high

    def _atom(self) -> tuple[str, int]:
        sign = self._take()
        if sign == "(":
            return self._group()
        if sign == "[":
            return self._class()
        if sign == "\\":
            return self._escaped()
        if sign in _QUANTIFIERS:
            raise RefusedPatternError(f"{sign} after nothing")
        if self._similar and sign in "%_":
            return (".*", 2) if sign == "%" else (".", 1)
        if not self._similar and sign in ".^$":
            self._begins += sign == "^"
            self._ends += sign == "$"
            return sign, 1
        return self._character(sign), 1

    def _group(self) -> tuple[str, int]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RefusedPatternError(f"groups in groups, more than {_DEEPEST} deep,")
        if self._next() == "?":
            raise RefusedPatternError("(?")
        found, size = self._alternatives()
        if self._take() != ")":
            raise RefusedPatternError("a ( without its )")
        self._depth -= 1
        return f"({found})", size + 2

    def _escaped(self) -> tuple[str, int]:
        sign = self._take()
        if not sign:
            raise RefusedPatternError("a \\ at the end")
        if sign.isalnum():
            if self._similar:
                raise RefusedPatternError(f"\\{sign}")
            if sign in _SIGNS_OF_CONTROL:
                return _SIGNS_OF_CONTROL[sign], 1
            members = _SETS.get(sign.lower())
            if members is None:
                raise RefusedPatternError(f"\\{sign}")
            return _class_of(set(members), negated=sign.isupper()), 1
        return self._character(sign), 1

    def _character(self, sign: str) -> str:
        if self._ignore_case and sign in ascii_letters:
            return f"[{sign.lower()}{sign.upper()}]"
        return f"\\{sign}" if sign in _SPECIAL else sign

    def _class(self) -> tuple[str, int]:
        """The rest of [...]: all of its members, one by one."""
        negated = self._next() == "^"
        if negated:
            self._take()
        members: set[str] = set()
        first = True
        while first or self._next() != "]":
            first = False
            if not self._next():
                raise RefusedPatternError("a [ without its ]")
            members |= self._members()
        self._take()
        if self._ignore_case:
            letters = {sign for sign in members if sign in ascii_letters}
            members |= {sign.swapcase() for sign in letters}
        return _class_of(members, negated=negated), 1

    def _members(self) -> set[str]:
        sign = self._take()
        if sign == "[" and self._follows(":.="):
            kind, end = self._next(), self._text.find(":]", self._place + 1)
            name = self._text[self._place + 1 : max(end, 0)]
            if kind != ":" or name not in _NAMED:
                raise RefusedPatternError("a [: :] of another name")
            self._place = end + 2
            return set(_NAMED[name])
        if sign == "\\":
            sign = self._take()
            if sign in _SETS:
                return set(_SETS[sign])
            if sign in _SIGNS_OF_CONTROL:
                return {_SIGNS_OF_CONTROL[sign]}
            if not sign or sign.isalnum():
                raise RefusedPatternError(f"\\{sign} in [ ]")
            return {sign}
        after = self._text[self._place : self._place + 2]
        if after[:1] != "-" or after[1:] in {"", "]"}:
            return {sign}
        self._place += 2
        same = next((kind for kind in (digits, ascii_lowercase, ascii_uppercase) if sign in kind), "")
        if after[1] not in same or after[1] < sign:
            raise RefusedPatternError(f"the range {sign}{after}")
        return set(same[same.index(sign) : same.index(after[1]) + 1])


def _times(atom: str, least: int, most: int | None) -> str:
    """An atom so often, in what both databases read alike."""
    if most is None:
        return f"{atom}*" if least == 0 else f"{atom}{{{least}}}{atom}*"
    if most == 0:
        return "()"
    if least == most:
        return f"{atom}{{{most}}}"
    return f"{atom}{{{least},{most}}}" if least else f"({atom}{{1,{most}}})?"


def _class_of(members: set[str], *, negated: bool) -> str:
    """A class of these members; runs of letters or digits as ranges, - where it can be nothing else."""
    written = ""
    for run in _runs(members - {"-"}):
        escaped = [f"\\{sign}" if sign in _IN_CLASSES else sign for sign in run]
        written += f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(escaped)
    return f"[{'^' if negated else ''}{'-' if '-' in members else ''}{written}]"


def _runs(members: set[str]) -> list[str]:
    found: list[str] = []
    for sign in sorted(members):
        follows = found and ord(sign) == ord(found[-1][-1]) + 1
        if follows and any(
            sign in kind and found[-1][-1] in kind for kind in (digits, ascii_lowercase, ascii_uppercase)
        ):
            found[-1] += sign
        else:
            found.append(sign)
    return found

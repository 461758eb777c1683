"""Reading LETOR text and normalising features, compiled.

Contract: `text` holds whole lines as bytes. Rows of documents go to X (rows, features) float64; numbers that need
more than one exact multiplication or division are left to the caller (`slow`), so every value is the nearest double.
"""

from typing import Any

import numpy as np
from numba import njit

_STRICT: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

READ, FAULT, TOO_NARROW, TOO_MANY_SLOW = range(4)
N_ROWS, N_LINES, N_SLOW, N_FEATURES, FAULT_AT = range(5)  # entries of `state`

_EXACT = 22  # powers of ten up to this one are doubles
_POWERS = 10.0 ** np.arange(_EXACT + 1)
_MANTISSA = 2**53
_DIGITS = 18  # fit an int64
_NEWLINE, _SPACE, _HASH, _PLUS, _MINUS, _DOT, _ZERO, _COLON = 10, 32, 35, 43, 45, 46, 48, 58


@njit(**_STRICT)
def _is_space(c):
    return c == _SPACE or 9 <= c <= 13


@njit(**_STRICT)
def _ends_token(c):
    return c == _HASH or _is_space(c)


@njit(**_STRICT)
def _whole_number(text, i, end):
    """Digits from i: the number, -1 if there are none or too many, and where they end."""
    value = 0
    first = i
    while i < end and _ZERO <= text[i] <= _ZERO + 9:
        if i - first >= _DIGITS:
            return -1, i
        value = 10 * value + (text[i] - _ZERO)
        i += 1
    return (value if i > first else -1), i


@njit(**_STRICT)
def _decimal(text, i, end):
    """A number from i: its value, whether that is exact, and where its token ends."""
    negative = False
    if i < end and (text[i] == _MINUS or text[i] == _PLUS):
        negative = text[i] == _MINUS
        i += 1
    mantissa = 0
    n_digits = 0  # without leading zeros
    n_seen = 0
    exponent = 0
    has_dot = False
    is_exact = True
    while i < end and not _ends_token(text[i]):
        c = text[i]
        if _ZERO <= c <= _ZERO + 9:
            n_seen += 1
            if has_dot:
                exponent -= 1
            if n_digits > 0 or c != _ZERO:
                n_digits += 1
                if n_digits > _DIGITS:
                    is_exact = False
                else:
                    mantissa = 10 * mantissa + (c - _ZERO)
        elif c == _DOT and not has_dot:
            has_dot = True
        else:  # an exponent, a word, or nonsense
            is_exact = False
        i += 1
    if not is_exact or n_seen == 0 or mantissa > _MANTISSA or -exponent > _EXACT:
        return 0.0, False, i
    value = mantissa / _POWERS[-exponent]
    return (-value if negative else value), True, i


@njit(**_STRICT)
def read_lines(text, X, grades, qids, lines, slow, max_grade, max_features, state):
    """Parses all lines; what came of it is the return value, and `state` has the counts.

    `lines` gets the line (from 0) of each row, `slow` rows of (row, feature, token start, token end). On a fault
    state[FAULT_AT] is where its line begins; when X is too narrow state[N_FEATURES] is the width that is needed.
    """
    i = 0
    row = 0
    line = 0
    n_slow = 0
    widest = 0
    status = READ
    while i < text.size:
        start = i
        end = i
        while end < text.size and text[end] != _NEWLINE:
            end += 1
        following = end + 1
        while i < end and _is_space(text[i]):
            i += 1
        if i < end and text[i] != _HASH:
            ok, i, grade, qid = _head(text, i, end, max_grade)
            previous = 0
            if ok:
                grades[row] = grade
                qids[row] = qid
                lines[row] = line
                for j in range(X.shape[1]):
                    X[row, j] = 0.0
            while ok:
                while i < end and _is_space(text[i]):
                    i += 1
                if i >= end or text[i] == _HASH:
                    break
                feature, i = _whole_number(text, i, end)
                if not previous < feature <= max_features or i >= end or text[i] != _COLON:
                    ok = False
                    break
                previous = feature
                if feature > X.shape[1]:
                    state[N_FEATURES] = feature
                    return TOO_NARROW
                token = i + 1
                value, is_exact, i = _decimal(text, token, end)
                X[row, feature - 1] = value
                if not is_exact:
                    if n_slow == slow.shape[0]:
                        return TOO_MANY_SLOW
                    slow[n_slow, 0] = row
                    slow[n_slow, 1] = feature - 1
                    slow[n_slow, 2] = token
                    slow[n_slow, 3] = i
                    n_slow += 1
            if not ok:
                state[FAULT_AT] = start
                status = FAULT
                break
            widest = max(widest, previous)
            row += 1
        line += 1
        i = following
    state[N_ROWS] = row
    state[N_LINES] = line
    state[N_SLOW] = n_slow
    state[N_FEATURES] = widest
    return status


@njit(**_STRICT)
def _head(text, i, end, max_grade):
    """The grade and the qid that begin a row: whether they are sound, and where they end."""
    grade, i = _whole_number(text, i, end)
    if not 0 <= grade <= max_grade or i >= end or not _is_space(text[i]):
        return False, i, grade, 0
    while i < end and _is_space(text[i]):
        i += 1
    if i + 4 > end or not (text[i] == 113 and text[i + 1] == 105 and text[i + 2] == 100 and text[i + 3] == _COLON):
        return False, i, grade, 0
    i += 4
    qid, i = _whole_number(text, i, end)
    if qid < 0 or (i < end and not _ends_token(text[i])):
        return False, i, grade, qid
    return True, i, grade, qid


@njit(**_STRICT)
def normalise(X, offsets, out):
    """Per query and feature (x - min) / (max - min), 0 where all are equal; halves keep the span finite."""
    low = np.empty(X.shape[1])
    high = np.empty(X.shape[1])
    for q in range(offsets.size - 1):
        low[:] = X[offsets[q]]
        high[:] = X[offsets[q]]
        for i in range(offsets[q] + 1, offsets[q + 1]):
            for j in range(X.shape[1]):
                low[j] = min(low[j], X[i, j])
                high[j] = max(high[j], X[i, j])
        for j in range(X.shape[1]):
            low[j] *= 0.5
            high[j] = 0.5 * high[j] - low[j]
        for i in range(offsets[q], offsets[q + 1]):
            for j in range(X.shape[1]):
                if high[j] > 0.0:
                    out[i, j] = (0.5 * X[i, j] - low[j]) / high[j]
                else:
                    out[i, j] = 0.0

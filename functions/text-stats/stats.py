"""Counts what a text is made of. Knows nothing of HTTP, so that it is tested with any Python."""

import math
import re
from collections import Counter

# Letters and digits of any script; an apostrophe or a hyphen between them belongs to the word.
WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
# A sentence ends with its marks, where white space or the end of the text follows ("3.5" holds no end).
SENTENCE_END = re.compile(r"[.!?\u2026]+[\"'\u201d\u2019\u00bb)\]]*(?=\s|$)|[\u3002\uff01\uff1f]+")
# What an adult reads silently in a minute, rounded down.
WORDS_PER_MINUTE = 230
# How much of a word is shown: a text without spaces is one word, and would come back whole.
MOST_SHOWN = 100


def statistics(text: str, top: int) -> dict:
    """The statistics of `text`, with its `top` most frequent words."""
    words = WORD.findall(text)
    counts = Counter(word.casefold() for word in words)
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
    return {
        "characters": len(text),
        "characters_without_spaces": sum(1 for character in text if not character.isspace()),
        "words": len(words),
        "distinct_words": len(counts),
        "lines": len(text.splitlines()),
        "sentences": sentences(text),
        "average_word_length": round(sum(map(len, words)) / len(words), 2) if words else 0.0,
        "reading_seconds": math.ceil(len(words) * 60 / WORDS_PER_MINUTE),
        "top_words": [{"word": shown(word), "count": count} for word, count in frequent],
    }


def sentences(text: str) -> int:
    """How many pieces between sentence ends hold a word; a last one needs no mark."""
    return sum(1 for piece in SENTENCE_END.split(text) if WORD.search(piece))


def shown(word: str) -> str:
    """The word, cut where it is too long to be one."""
    return word if len(word) <= MOST_SHOWN else f"{word[:MOST_SHOWN]}\u2026"

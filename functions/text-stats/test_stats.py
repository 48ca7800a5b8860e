"""Tests of the counting: python3 -m unittest discover -s functions/text-stats"""

import unittest

from stats import statistics


class Statistics(unittest.TestCase):
    def test_a_text(self):
        text = "The cat saw the dog. The dog, it's said, ran 3.5 miles!\nWell-known story?"
        result = statistics(text, 2)
        self.assertEqual(result["words"], 15)
        self.assertEqual(result["distinct_words"], 12)
        self.assertEqual(result["sentences"], 3)
        self.assertEqual(result["lines"], 2)
        self.assertEqual(result["characters"], len(text))
        self.assertEqual(result["top_words"], [{"word": "the", "count": 3}, {"word": "dog", "count": 2}])

    def test_nothing(self):
        result = statistics("", 10)
        self.assertEqual(
            [result[key] for key in ("characters", "words", "lines", "sentences", "reading_seconds")],
            [0, 0, 0, 0, 0],
        )
        self.assertEqual((result["average_word_length"], result["top_words"]), (0.0, []))

    def test_words_of_one_count_stand_in_order(self):
        words = [entry["word"] for entry in statistics("b a C c", 10)["top_words"]]
        self.assertEqual(words, ["c", "a", "b"])

    def test_other_scripts_and_marks(self):
        result = statistics("Größe ist GRÖSSE… «Да?» 你好。再见！", 1)
        self.assertEqual(result["top_words"], [{"word": "grösse", "count": 2}])
        self.assertEqual(result["sentences"], 4)

    def test_reading_time_rounds_up(self):
        self.assertEqual(statistics("word " * 230, 0)["reading_seconds"], 60)
        self.assertEqual(statistics("word", 0)["reading_seconds"], 1)

    def test_an_endless_word_is_cut(self):
        result = statistics("x" * 1000, 1)
        self.assertEqual(result["average_word_length"], 1000)
        self.assertEqual(result["top_words"], [{"word": "x" * 100 + "\u2026", "count": 1}])

    def test_dots_without_words_are_no_sentences(self):
        self.assertEqual(statistics("... Well. ...", 0)["sentences"], 1)


if __name__ == "__main__":
    unittest.main()

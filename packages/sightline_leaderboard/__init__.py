"""The leaderboard: every registered method on some models at some budgets, ranked with what the intervals allow."""

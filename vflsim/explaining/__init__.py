"""Explain clients by their linear heads: importance, noisy test features, embeddings, retraining (VIM Sec. 5.2)."""

from vflsim.explaining.explain import Explanation, explain, explanation_tables, save, summarised

__all__ = ["Explanation", "explain", "explanation_tables", "save", "summarised"]

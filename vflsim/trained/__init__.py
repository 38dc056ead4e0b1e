"""The models that a run left behind: what clients send, and what the server predicts from it."""

from vflsim.trained.models import SplitAnswer, TrainedModels, trained_models
from vflsim.trained.uploads import Uploads, Wiring

__all__ = ["SplitAnswer", "TrainedModels", "Uploads", "Wiring", "trained_models"]

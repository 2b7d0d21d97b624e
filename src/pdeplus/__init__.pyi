from . import attacks as attacks
from . import functional as functional
from .augment.augmix import augmix as augmix
from .core.context import Trace as Trace
from .core.context import diffusion as diffusion
from .core.prediction import predict as predict
from .core.surgery import add_diffusion as add_diffusion
from .corruptions.suite import CBAR as CBAR
from .corruptions.suite import CORRUPTIONS as CORRUPTIONS
from .corruptions.suite import EXTRA_CORRUPTIONS as EXTRA_CORRUPTIONS
from .corruptions.suite import Corrupt as Corrupt
from .corruptions.suite import RandomCorruption as RandomCorruption
from .corruptions.suite import corrupt as corrupt
from .errors import UserError as UserError
from .evaluation.deployment import load_model as load_model
from .evaluation.loop import evaluate as evaluate
from .evaluation.records import Record as Record
from .evaluation.records import read_records as read_records
from .methods._losses import AugMixLoss as AugMixLoss
from .methods._losses import PDEPlusLoss as PDEPlusLoss
from .reports.page import report as report
from .training.config import Config as Config
from .training.config import load_config as load_config
from .training.run_folder import Run as Run
from .training.run_folder import resume as resume
from .training.run_folder import train as train

__version__: str

from . import attacks as attacks
from . import functional as functional
from .augment.augmix import augmix as augmix
from .config import Config as Config
from .config import load_config as load_config
from .corruptions.suite import CORRUPTIONS as CORRUPTIONS
from .corruptions.suite import EXTRA_CORRUPTIONS as EXTRA_CORRUPTIONS
from .corruptions.suite import corrupt as corrupt
from .diffusion import Trace as Trace
from .diffusion import add_diffusion as add_diffusion
from .diffusion import diffusion as diffusion
from .evaluate import evaluate as evaluate
from .prediction import predict as predict
from .records import Record as Record
from .records import read_records as read_records
from .report import report as report
from .run import Run as Run
from .run import resume as resume
from .run import train as train
from .use import load_model as load_model

__version__: str

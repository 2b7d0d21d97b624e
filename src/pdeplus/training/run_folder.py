"""A run folder: config, environment, metrics, checkpoints, weights; and training into one.

Of several processes the main one alone writes.
"""

import json
import textwrap
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import tomli_w
import torch
from torch import Tensor, nn

from .. import __version__
from .._lib.environment import written_by
from .._lib.files import locked, move_aside, read_weights, readable
from .._lib.long_work import held_back
from .._lib.registry import build, check_value, find, users_code
from .._lib.seeds import derive
from ..augment.base import Augmentor
from ..augment.resized_crop import ResizedCrop
from ..core.add_block import ADDBlock
from ..core.batch_norm import check_batch_size, split_batch_norm
from ..core.surgery import INPUT
from ..data._pictures import Files
from ..data.base import Images, Source, Split, preload, split
from ..errors import RunFailed, Stopped, UserError, check_choice, reason_of
from ..methods.base import Method
from ..models._libraries import check_logits
from ..models.base import build_model, check_image_size, facts_of, fit_images, mark_of
from .checkpoint import load_checkpoint, save_checkpoint
from .config import Config, Part, config_hash, load_config, names_users_code, to_tables
from .distributed import ProcessLost, join
from .given import give_again, with_given
from .loop import fit
from .precision import chosen_precision
from .run_files import begin_files, begun, check_unused, finish_files, write_epoch
from .selection import shifted
from .session import (
    Checkpoint,
    Metrics,
    Session,
    Watch,
    is_epoch,
    open_session,
    progress_bar,
    read_progress,
    score_of,
    tensorboard,
)
from .sums import SUMS, Expects, check_config, check_sum, check_unchanged, parse_expects, read_sums
from .wise_ft import mix_with_start

Selection = Literal["last", "validation"]
"""Which epoch's weights."""
FITTED = 5000
"""Training images that set those parts of a network that images set."""


@dataclass(frozen=True)
class Run:
    """A run folder that training has begun or finished."""

    path: Path
    trust_code: bool = False
    """Whether modules outside pdeplus that its config names may be imported."""
    given: tuple[object, ...] = field(default=(), compare=False, repr=False)
    """The network and the data that were passed in Python."""

    @staticmethod
    def load(
        path: str | Path,
        *,
        trust_code: bool = False,
        model: nn.Module | None = None,
        data: Any = None,
        test: Any = None,
    ) -> "Run":
        """Open a run folder; refuses any other folder.

        The folder may come from a stranger: nothing that it names is run unless `trust_code` is true. A `model` and
        `data` that were passed in Python must be passed again in another process, for what depends on them.
        """
        run = Run(Path(path), trust_code)
        if "\0" in str(path) or not (run.path / "config.toml").is_file():
            nor = " (and no config.json, which a model of the hub has)" * Path(path).is_dir()
            code = Path(f"{str(path).removesuffix('.py')}.py")
            way_out = f"; put code into a folder and give its dotted name: my_package.{code.stem}" * code.is_file()
            raise UserError(f"{readable(path)} is not a run folder: it has no config.toml{nor}{way_out}")
        if model is None and data is None and test is None:
            return run
        return replace(run, given=give_again(run.config, model, lambda: run.expects.shape, data, test))

    @property
    def config(self) -> Config:
        """The resolved config; a key that this version does not know is named, and whose it is."""
        path = self.path / "config.toml"
        try:
            with users_code(self.trust_code):
                config = load_config(path)
        except UserError as error:
            if "would import" in str(error):
                raise UserError(f"{self.path}: {error}") from error
            if "is not known" not in str(error):
                raise
            by = f"pdeplus {written_by(self.path)} and this is {__version__}"
            raise UserError(f"{self.path} was written by {by}, which cannot read its config: {error}") from error
        if self.finished:
            check_config(self.path)
        return config

    @property
    def expects(self) -> Expects:
        """The network's classes and image shape; of an older run folder, which does not tell, its data set's."""
        path = self.path / "model.json"
        if path.is_file():
            data = path.read_bytes()
            expects = parse_expects(data, path)
            if self.finished:
                check_sum(self.path, path, data)
            return expects
        try:
            source = build_source(self.config)
            return expects_of(source, source.as_tested(source.train()))
        except (UserError, OSError) as error:
            raise UserError(f"{self.path} has no model.json, so that its data set is needed: {error}") from error

    @property
    def metrics(self) -> list[Metrics]:
        """One record per finished epoch; a damaged one is refused by its line."""
        path = self.path / "metrics.jsonl"
        data = path.read_bytes() if path.exists() else b""
        found = list[Metrics]()
        for number, line in enumerate(data.splitlines(), 1):
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if is_epoch(record):
                    found.append(cast(Metrics, record))
            if len(found) < number:
                raise UserError(f"{path}: line {number} is damaged; remove it, or restore the file from a backup")
        if data and self.finished:
            check_sum(self.path, path, data)
        return found

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done."""
        return (self.path / "model.safetensors").is_file()

    @property
    def model(self) -> nn.Module:
        """The trained network, of the epoch with the best validation score, in eval mode."""
        return self.network("validation")

    @property
    def kept(self) -> dict[int, Path]:
        """The weights of the epochs that train.keep_every kept; of a finished run all or none."""
        found = {int(path.stem): path for path in sorted((self.path / "epochs").glob("[0-9]*.safetensors"))}
        train = self.config.train if found and self.finished else None
        if train is not None and train.keep_every:
            lacking = {*range(train.keep_every, train.epochs + 1, train.keep_every)} - {*found}
            if lacking:
                way_out = "restore it from a backup, or delete the folder to continue without them"
                raise UserError(f"{self.path / 'epochs'} has no weights of epoch {min(lacking)}; {way_out}")
        return found

    def network(self, selection: Selection) -> nn.Module:
        """The network of the last epoch, or of the epoch with the best validation score."""
        return self.load_weights(self.weights(selection)[1])

    def weights(self, selection: Selection) -> tuple[int, Path]:
        """The epoch that a selection means, and the file of its weights."""
        check_choice("selection", selection, Selection)
        sums, best = read_sums(self.path), self.path / "best.safetensors"
        # a shared run has one epoch's weights, the last of its metrics
        only = bool(sums) and best.name not in sums and not best.exists()
        path = self.path / "model.safetensors" if only or selection == "last" else best
        scores = [score_of(record) for record in self.metrics]
        if not path.is_file() or not self.finished:
            done = f"{len(scores)} of {self.config.train.epochs} epochs are done"
            raise UserError(f"{self.path} is unfinished, {done}; finish it: pdeplus train --resume {self.path}")
        if not scores:
            raise UserError(f"{self.path} has no metrics.jsonl, which says what was trained; restore it from a backup")
        chosen = max((score, epoch) for epoch, score in enumerate(scores, 1))[1]
        return (len(scores) if only or selection == "last" else chosen), path

    def read_weights(self, path: Path) -> dict[str, Tensor]:
        """The weights in a file; one of this run, once it is finished, must be the one that training wrote."""
        weights = read_weights(path)
        if self.finished:
            check_sum(self.path, path, path.read_bytes())
        return weights

    def load_weights(self, path: Path) -> nn.Module:
        """The run's network with the weights in a file, in eval mode; what was damaged since training is refused."""
        config, expects = self.config, self.expects
        if self.finished and not read_sums(self.path):
            unseen = "damage to its files may go unnoticed"
            warnings.warn(f"{self.path} has no {SUMS}, as is usual in older versions: {unseen}", stacklevel=2)
        weights = self.read_weights(path)
        try:
            model = build_network(config, build_method(config), expects)
        except (RuntimeError, MemoryError, OverflowError) as error:
            reason = reason_of(error, 200)
            raise UserError(f"{self.path}: the network of its config.toml cannot be built: {reason}") from error
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = textwrap.shorten(str(error).partition("\n")[2], 200, placeholder=" …")
            raise UserError(f"{path} holds weights of another network: {reason}") from error
        return model.eval()


def train(
    config: Config | str | Path = "finetune",
    out: str | Path | None = None,
    *,
    model: nn.Module | str | None = None,
    data: Any = None,
    test: Any = None,
    settings: Sequence[str] = (),
    force: bool = False,
    progress: bool = False,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Train as `config` says, into a new run folder, and return the finished run.

    Everything is built and checked before the folder is made. A folder that is not empty is refused. If several
    processes call this, only the main one writes and calls `watch` and `say`; for a network by URI, `say` is told its
    input format and its ADD blocks.

    Args:
        config: a Config, or the name or file of a preset.
        out: the run folder; runs/NAME-METHOD-seedSEED if not given.
        model: in place of the config's: a module that returns logits (`Run.load` needs it again), or a name or URI.
        data: in place of the config's: any torch Dataset (see `read_data`), or a folder of class folders.
        test: a Dataset to test on; a fifth of `data` if not given.
        settings: of a preset, such as "train.epochs=3".
        force: a run that is in the folder is first moved aside, and `say` is told where.
        progress: show a bar on a terminal, elsewhere a line per epoch.
    """
    config, given = with_given(config, settings, model, data, test)
    default, config = f"{config.name}-{config.method.name}-seed{config.seed}", replace(fitted(config), continues="")
    if out is None and (Path(default).name != default or "\\" in default):
        raise UserError(f"name={config.name!r} points outside runs; choose a folder with --out, or another name")
    folder, processes = Path(out) if out is not None else Path("runs") / default, join(config.train.device)
    replaces = force and processes.on_main(lambda: (folder / "config.toml").is_file())
    if not replaces:
        processes.on_main(lambda: check_unused(folder))
    prepared = processes.together(lambda: prepare(config))
    text = tomli_w.dumps(to_tables(config))
    if processes.main and prepared[1].facts is not None:
        say(about_network(config, *prepared))
    with ExitStack() as stack:
        if replaces:
            processes.on_main(lambda: say(f"the run that was in {folder} is now in {move_aside(folder)}"))
        processes.on_main(lambda: stack.enter_context(begun(folder, text)))
        watch = stack.enter_context(progress_bar("training")) if progress and processes.main else watch
        return run_session(*prepared, Run(folder, trust_code=True, given=given), None, watch)


def resume(
    path: str | Path,
    *,
    model: nn.Module | None = None,
    data: Any = None,
    test: Any = None,
    trust_code: bool = False,
    progress: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Continue an interrupted run; it ends as if it had never been interrupted.

    With more or fewer processes than before, its results are similar but not the same bits. Code outside pdeplus that
    the folder's config names is refused unless `trust_code` is true. A `model`, `data` and `test` that were passed to
    `train` must be passed again in another process.
    """
    processes = join()
    load = partial(Run.load, path, trust_code=trust_code, model=model, data=data, test=test)
    run = processes.on_main(load) if model is None and data is None else processes.together(load)
    if processes.on_main(lambda: run.finished):
        return run
    with ExitStack() as stack:
        processes.on_main(lambda: stack.enter_context(locked(run.path)))
        if processes.on_main(lambda: run.finished):
            return run  # by another process, a moment ago
        config = processes.on_main(lambda: run.config)
        checkpoint = processes.on_main(lambda: load_checkpoint(run.path / "checkpoints"))
        processes.on_main(lambda: check_unchanged(run.path, checkpoint))
        if checkpoint is None and config.continues:  # killed while it was being made, or the checkpoint was deleted
            raise UserError(f"{path} has no checkpoint of the run that it continues; create it again from that run")
        if checkpoint is None and model is not None and not config.model.name.endswith(mark_of(model)):
            way_out = "give it with those that it began with, or train anew"
            raise UserError(f"{path} has no checkpoint yet, and the model has other weights; {way_out}")
        before = processes.on_main(lambda: run.expects if checkpoint else None)
        prepared = processes.together(lambda: prepare(config, start=checkpoint is None, before=before))
        watch = stack.enter_context(progress_bar("training")) if progress and processes.main else watch
        return run_session(*prepared, run, checkpoint, watch)


def train_or_resume(config: Config, folder: Path, *, watch: Watch | None = None) -> Run:
    """The finished run of this config and seed in a folder: as it is there, gone on with, or trained anew.

    A folder that holds another run is refused.
    """
    if not (folder / "config.toml").exists():
        return train(config, folder, watch=watch)
    own = names_users_code(config)  # then the folder may name it as well
    there, config = Run.load(folder, trust_code=own).config, fitted(config)
    if (config_hash(there), there.seed) != (config_hash(config), config.seed):
        raise UserError(f"{folder} holds a run with other settings; choose another folder, or move it away")
    return resume(folder, trust_code=own, watch=watch)


def about_network(config: Config, session: Session, expects: Expects) -> str:
    """What a network by URI takes and where its ADD blocks are, in one line."""
    places = [block.name for block in session.model.modules() if isinstance(block, ADDBlock)]
    after = [place for place in places if place != INPUT]
    blocks = "; an ADD block on the images" * (INPUT in places) + f"; ADD blocks after {', '.join(after)}" * bool(after)
    return f"{config.model.name}: {expects.facts}; a new head for {len(expects.classes)} classes{blocks}"


def fitted(config: Config) -> Config:
    """The config with images as a network by URI was made for, in all of that which is not set; any other as it is."""
    facts, source = facts_of(config.model.name, config.model.options), find("data", config.data.name)
    if facts is None or not is_dataclass(source):
        return config
    wanted: dict[str, Any] = {"size": facts.size, "crop": facts.crop, "interpolation": facts.interpolation}
    wanted |= dict(config.data.options)
    if isinstance(transform_of(config, build_source(config)), ResizedCrop):
        wanted.setdefault("read_size", round(wanted["size"] / wanted["crop"]))
    known = {option.name for option in fields(source)} | {"transform"}
    options = {name: value for name, value in wanted.items() if name in known}
    return replace(config, data=Part(name=config.data.name, options=options))


def prepare(config: Config, *, start: bool = True, before: Expects | None = None) -> tuple[Session, Expects]:
    """Build all parts, so that bad input is answered before anything is written; `start` as for `build_network`.

    A run that goes on has been trained with the pictures, and the facts of its network, of `before`.
    """
    source, method = build_source(config), build_method(config)
    parts = replace(split_of(config, source), transform=transform_of(config, source))
    facts = before.facts if before else None
    facts = facts or facts_of(config.model.name, config.model.options)
    if facts is not None:  # with what the data set does in place of it
        shown = {key: value for key, value in config.data.options.items() if key in ("crop", "interpolation")}
        facts = replace(facts, **shown)
    stored = parts.train.stored
    pictures = stored.fingerprint() if isinstance(stored, Files) else ""
    if before and before.pictures and before.pictures != pictures:
        way_out = "put them back as they were, or train anew"
        changed = "have changed since the run began, in name or size"
        raise UserError(f"the pictures of {config.data.name} {changed}; {way_out}")
    expects = replace(expects_of(source, parts.validation), facts=facts, pictures=pictures)
    network = build_network(config, method, expects, start=start)
    check_batch_size(network, config.train.batch_size)
    preload(parts.train, parts.validation)
    fit_images(network, lambda: parts.train.take(torch.arange(min(FITTED, len(parts.train)))).floats())
    parts = replace(parts, shifted=shifted(parts.validation, config.seed))
    return open_session(network, method, parts, config.train, config.seed), expects


def run_session(
    session: Session, expects: Expects, run: Run, checkpoint: Checkpoint | None, watch: Watch | None
) -> Run:
    """Train into a folder that holds the config, from a checkpoint or from the start."""
    processes, folder = session.processes, run.path
    history = read_progress(checkpoint).history if checkpoint else []
    go_on = f"continue with: pdeplus train --resume {folder}"
    with processes.one_voice():
        try:
            session.engine.precision = processes.on_main(lambda: chosen_precision(session, folder))
            processes.on_main(lambda: begin_files(folder, expects, history))
            with held_back() as stop, tensorboard(folder) if processes.main else nullcontext() as show:
                config = (folder / "config.toml").read_bytes() if processes.main else b""

                def save(step: int, state: Checkpoint) -> None:
                    save_checkpoint(folder / "checkpoints", step, replace(state, config=config))

                on_epoch = partial(write_epoch, folder, session.settings, show)
                on_step: Watch = watch or (lambda step, steps, progress, logs: None)
                network = fit(session, resume=checkpoint, save=save, on_step=on_step, on_epoch=on_epoch, stop=stop)
                if network is not None and session.settings.wise_ft:
                    mix_with_start(session, folder)
                if network is not None:
                    processes.on_main(lambda: finish_files(folder, network))
            if network is None:
                raise Stopped("stopped, as another process of this job was asked to")
        except ProcessLost as error:
            raise ProcessLost(f"{error}; {go_on}") from error
        except (KeyboardInterrupt, Stopped) as error:
            done = f"{len(session.progress.history)} of {session.settings.epochs} epochs are done"
            raise type(error)(f"{str(error) or 'interrupted'}, {done}; {go_on}") from error
        except UserError as error:  # such as a picture that is gone
            told = str(error) if "--resume" in str(error) else f"{error}; fix this, then {go_on}"
            raise UserError(told) from error
        except RunFailed as error:
            slower = f"train.lr={session.settings.lr / 5:.2g}"
            raise RunFailed(f"{error}: pdeplus train --resume {folder} {slower}") from error
    return run


def build_source(config: Config) -> Source:
    """The configured data set."""
    own = {key: value for key, value in config.data.options.items() if key != "transform"}
    return build("data", config.data.name, own)


def split_of(config: Config, source: Source) -> Split:
    """The run's own training and validation images, of its data set."""
    return split(source, validation=config.train.validation, limit=config.train.limit, seed=config.seed)


def transform_of(config: Config, source: Source) -> Augmentor:
    """The light transform of the training images: the data set's own, or the one that the config names."""
    if "transform" not in config.data.options:
        return source.transform
    return check_value("data.transform", config.data.options["transform"], Augmentor)


def build_method(config: Config) -> Method:
    """The configured method."""
    return build("methods", config.method.name, config.method.options)


def expects_of(source: Source, images: Images) -> Expects:
    """What a network for this data set expects, of whose images none is read."""
    return Expects(classes=source.classes, shape=images.shape)


def build_network(config: Config, method: Method, expects: Expects, *, start: bool = False) -> nn.Module:
    """The configured network, prepared by the method, its weights drawn from the run's seed.

    They depend on the config and on what is expected alone, not on any image. With `start` it then gets the weights
    that it is to start from, of a file or a library; a network that is loaded needs none.
    """
    check_image_size(min(expects.shape[1:]))
    if config.train.batch_norm == "split" and not method.learns_plain:
        raise UserError(
            f"train.batch_norm=split: {method.label} trains with noise in every pass, so that statistics of plain "
            "passes are never measured; use shared or recalibrate"
        )
    given = {"classes": len(expects.classes), "channels": expects.shape[0]}
    name, options = config.model.name, config.model.options
    with torch.random.fork_rng():
        torch.manual_seed(derive(config.seed, "init"))
        model = build_model(name, options, **given, facts=expects.facts, start=start)
        if "." in name or ":" in name:
            check_logits(model, name, expects.shape, given["classes"])
        network = method.prepare(model, torch.zeros(2, *expects.shape))
    return split_batch_norm(network) if config.train.batch_norm == "split" else network

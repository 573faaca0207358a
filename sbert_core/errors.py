"""Errors whose message is written for the person who runs the job."""


class SbertBeamError(Exception):
    """Base class: what went wrong, where, and what to do, in one line."""


class ModelError(SbertBeamError, ValueError):
    """A model cannot be found, is not safe to load, or is not one this library can run."""


class TextError(SbertBeamError, TypeError):
    """An input is not text."""


class JobError(SbertBeamError, RuntimeError):
    """A job began and failed."""


class DataError(SbertBeamError, ValueError):
    """Data is not there, not readable, or not what is expected."""


class FormatWarning(UserWarning):
    """A dataset of an older release: it can be read, and checked only in part."""

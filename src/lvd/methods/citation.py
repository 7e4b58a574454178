"""What to cite: the paper, this software, and the published work that a model uses."""

from __future__ import annotations

from typing import Any, NamedTuple

from lvd._validation import InputError, check_choice
from lvd._version import __version__
from lvd.kernels import Kernel
from lvd.methods.base import PROMISES, IntervalRegressor
from lvd.methods.conformal import as_score
from lvd.methods.lvd import CROSSING, LVDRegressor
from lvd.methods.online_intervals import OnlineIntervals


class Reference(NamedTuple):
    """A BibTeX entry; `where` holds the name and value of the venue field."""

    authors: str
    title: str
    where: tuple[str, str]
    year: int

    def bibtex(self, key: str) -> str:
        """The BibTeX entry, with braces protecting capitals."""
        kind = {"journal": "article", "booktitle": "inproceedings"}.get(self.where[0], "misc")
        fields = {"author": self.authors, "title": f"{{{self.title}}}", self.where[0]: self.where[1]}
        lines = [f"  {name} = {{{text}}}," for name, text in fields.items()]
        return "\n".join([f"@{kind}{{{key},", *lines, f"  year = {{{self.year}}}", "}"])


_NIPS = "Advances in Neural Information Processing Systems {}"
_CANDES, _BARBER = "Cand{\\`e}s, Emmanuel J.", "Barber, Rina Foygel"
_LOCAL = "Locally Valid and Discriminative Prediction Intervals for Deep Learning Models"
_BEYOND = f"{_BARBER} and {_CANDES} and Ramdas, Aaditya and Tibshirani, Ryan J."
REFERENCES = {
    "lin2021": Reference(
        "Lin, Zhen and Trivedi, Shubhendu and Sun, Jimeng", _LOCAL, ("booktitle", _NIPS.format(34)), 2021
    ),
    "lvd": Reference(
        "{The lvd developers}",
        "lvd: locally valid and discriminative prediction intervals for any regression model",
        ("note", f"Version {__version__}"),
        2026,
    ),
    "papadopoulos2002": Reference(
        "Papadopoulos, Harris and Proedrou, Kostas and Vovk, Volodya and Gammerman, Alex",
        "Inductive Confidence Machines for Regression",
        ("booktitle", "Machine Learning: ECML 2002"),
        2002,
    ),
    "lei2018": Reference(
        "Lei, Jing and G'Sell, Max and Rinaldo, Alessandro and Tibshirani, Ryan J. and Wasserman, Larry",
        "Distribution-Free Predictive Inference for Regression",
        ("journal", "Journal of the American Statistical Association"),
        2018,
    ),
    "romano2019": Reference(
        f"Romano, Yaniv and Patterson, Evan and {_CANDES}",
        "Conformalized Quantile Regression",
        ("booktitle", _NIPS.format(32)),
        2019,
    ),
    "chernozhukov2021": Reference(
        'Chernozhukov, Victor and W{\\"u}thrich, Kaspar and Zhu, Yinchu',
        "Distributional Conformal Prediction",
        ("journal", "Proceedings of the National Academy of Sciences"),
        2021,
    ),
    "krogh1995": Reference(
        "Krogh, Anders and Vedelsby, Jesper",
        "Neural Network Ensembles, Cross Validation, and Active Learning",
        ("booktitle", _NIPS.format(7)),
        1995,
    ),
    "barber2021": Reference(
        _BEYOND, "Predictive Inference with the Jackknife+", ("journal", "The Annals of Statistics"), 2021
    ),
    "alaa2020": Reference(
        "Alaa, Ahmed M. and van der Schaar, Mihaela",
        "Discriminative Jackknife: Quantifying Uncertainty in Deep Learning via Higher-Order Influence Functions",
        ("booktitle", "International Conference on Machine Learning"),
        2020,
    ),
    "lakshminarayanan2017": Reference(
        "Lakshminarayanan, Balaji and Pritzel, Alexander and Blundell, Charles",
        "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
        ("booktitle", _NIPS.format(30)),
        2017,
    ),
    "gal2016": Reference(
        "Gal, Yarin and Ghahramani, Zoubin",
        "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning",
        ("booktitle", "International Conference on Machine Learning"),
        2016,
    ),
    "hernandez2015": Reference(
        "Hern{\\'a}ndez-Lobato, Jos{\\'e} Miguel and Adams, Ryan P.",
        "Probabilistic Backpropagation for Scalable Learning of Bayesian Neural Networks",
        ("booktitle", "International Conference on Machine Learning"),
        2015,
    ),
    "hore2023": Reference(
        f"Hore, Rohan and {_BARBER}",
        "Conformal Prediction with Local Weights: Randomization Enables Robust Guarantees",
        ("journal", "arXiv preprint arXiv:2310.07850"),
        2023,
    ),
    "barber2023": Reference(
        _BEYOND, "Conformal Prediction Beyond Exchangeability", ("journal", "The Annals of Statistics"), 2023
    ),
    "gibbs2021": Reference(
        f"Gibbs, Isaac and {_CANDES}",
        "Adaptive Conformal Inference Under Distribution Shift",
        ("booktitle", _NIPS.format(34)),
        2021,
    ),
    "gibbs2024": Reference(
        f"Gibbs, Isaac and {_CANDES}",
        "Conformal Inference for Online Prediction with Arbitrary Distribution Shifts",
        ("journal", "Journal of Machine Learning Research"),
        2024,
    ),
    "angelopoulos2023": Reference(
        f"Angelopoulos, Anastasios N. and {_CANDES} and Tibshirani, Ryan J.",
        "Conformal PID Control for Time Series Prediction",
        ("booktitle", _NIPS.format(36)),
        2023,
    ),
    "heid2024": Reference(
        "Heid, Esther and Greenman, Kevin P. and Chung, Yunsie and Li, Shih-Cheng and Graff, David E. and "
        "Vermeire, Florence H. and Wu, Haoyang and Green, William H. and McGill, Charles J.",
        "Chemprop: A Machine Learning Package for Chemical Property Prediction",
        ("journal", "Journal of Chemical Information and Modeling"),
        2024,
    ),
}
_METHODS = {
    "SplitConformalRegressor": ("papadopoulos2002", "lei2018"),
    "MADSplitRegressor": ("lei2018",),
    "ConformalizedQuantileRegressor": ("romano2019",),
    "JackknifePlusRegressor": ("barber2021",),
    "DiscriminativeJackknifeRegressor": ("alaa2020",),
    "DeepEnsembleRegressor": ("lakshminarayanan2017",),
    "MCDropoutRegressor": ("gal2016",),
    "PBPRegressor": ("hernandez2015",),
}
_SCORES = {
    "DistributionalResidual": ("chernozhukov2021",),
    "NormalizedResidual": ("lei2018",),
    "QuantileResidual": ("romano2019",),
}
_LEVELS = {
    "aci": ("gibbs2021",),
    "dtaci": ("gibbs2021", "gibbs2024"),
    "pid": ("gibbs2021", "angelopoulos2023"),
}


def citation(model: Any = None, *, guarantee: str | None = None) -> str:
    """BibTeX entries for what a model uses: the paper, this software, and the method, score and estimator.

    Parameters
    ----------
    model : one of lvd's regressors, fitted or not, or :class:`OnlineIntervals`; None for the paper and the
    software only.
    guarantee : the guarantee requested at prediction time, if not the default.

    Examples
    --------
    >>> import lvd
    >>> print(lvd.citation(lvd.LVDRegressor(preset="paper")).splitlines()[0])
    @inproceedings{lin2021,
    >>> reg = lvd.LVDRegressor(conformity_score="quantile")
    >>> [line for line in lvd.citation(reg).splitlines() if line.startswith("@")]
    ['@inproceedings{lin2021,', '@misc{lvd,', '@inproceedings{romano2019,']
    >>> print(lvd.citation(lvd.PBPRegressor()).split("\\n\\n")[-1])
    @inproceedings{hernandez2015,
      author = {Hern{\\'a}ndez-Lobato, Jos{\\'e} Miguel and Adams, Ryan P.},
      title = {{Probabilistic Backpropagation for Scalable Learning of Bayesian Neural Networks}},
      booktitle = {International Conference on Machine Learning},
      year = {2015}
    }
    """
    if guarantee is not None:
        check_choice(guarantee, "guarantee", tuple(PROMISES))
    keys = ["lin2021", "lvd", *_keys_of(model), *(("hore2023",) if guarantee == "randomized" else ())]
    return "\n\n".join(REFERENCES[key].bibtex(key) for key in dict.fromkeys(keys))


def _keys_of(model: Any) -> tuple[str, ...]:
    if isinstance(model, OnlineIntervals):
        return (*_keys_of(model.regressor), "barber2023", *_LEVELS[model.level])
    if isinstance(model, LVDRegressor):
        score = type(as_score(model.settings.conformity_score)).__name__
        crossed = ("barber2021",) if model.is_crossed or model.calibration in CROSSING else ()
        averaged = ("krogh1995",) if model.calibration == "ensemble" else ()
        return (*_SCORES.get(score, ()), *crossed, *averaged, *_estimator_keys(model))
    if isinstance(model, IntervalRegressor):
        return (*_METHODS.get(type(model).__name__, ()), *_estimator_keys(model))
    if model is None or isinstance(model, Kernel):
        return ()
    raise InputError(f"model must be one of lvd's regressors, or None, got {type(model).__name__}")


def _estimator_keys(model: IntervalRegressor) -> tuple[str, ...]:
    """Return chemprop's key if the estimator is a chemprop network, trained here or elsewhere."""
    of = type(vars(model).get("estimator")).__module__
    return ("heid2024",) if of.startswith(("chemprop.", "lvd.molecules")) else ()

"""A graph network on molecules: intervals, the molecules they rest on, and molecules of another kind.

Needs the extra `molecules`. The molecules are chains that the script makes itself, the target is RDKit's logP.
"""

# %% A few hundred molecules without a ring.
import os
import sys
from importlib.util import find_spec

if find_spec("chemprop") is None:
    sys.exit("This example needs chemprop: pip install 'lvd[molecules]'")

import numpy as np
from rdkit import Chem
from rdkit.Chem import Descriptors

import lvd

QUICK = "LVD_QUICK" in os.environ
ENDS = ["", "O", "N", "Cl", "F", "S", "C(=O)O", "C(=O)C", "C#N", "OC", "C=C", "C(F)(F)F", "OCCO"]
chains = [
    "C" * n + middle + end for n in range(1, 9 if QUICK else 19) for middle in ("", "C(C)(C)") for end in ENDS
]
smiles = np.array(sorted({Chem.CanonSmiles(one) for one in chains}), dtype=object)
y = np.array([Descriptors.MolLogP(Chem.MolFromSmiles(one)) for one in smiles])
X_train, X_calib, X_test, y_train, y_calib, y_test = lvd.three_way_split(smiles, y, random_state=0)

# %% Train chemprop's network, learn the kernel on its last layer, calibrate.
net = lvd.ChempropEstimator(
    hidden_size=32 if QUICK else 48, n_epochs=10 if QUICK else 30, batch_size=20, peak_rate=5e-3, device="cpu"
)
reg = lvd.LVDRegressor(net, calib_size=None, confidence_level=0.8, random_state=0)
reg.fit(X_train, y_train).conformalize(X_calib, y_calib)
y_pred, intervals = reg.predict_interval(X_test)
print(lvd.metrics.summary(y_test, y_pred, intervals, [0.8]))

# %% Molecules unlike any in the table.
rings = np.array(["c1ccccc1" + "C" * n + end for n in range(3) for end in ENDS], dtype=object)
y_rings = np.array([Descriptors.MolLogP(Chem.MolFromSmiles(one)) for one in rings])
rings_pred, rings_intervals = reg.predict_interval(rings)
for kind, true, predicted, found in (
    ("like the table", y_test, y_pred, intervals),
    ("with a ring", y_rings, rings_pred, rings_intervals),
):
    error = lvd.metrics.mean_absolute_deviation(true, predicted)
    coverage = lvd.metrics.marginal_coverage_rate(true, found)
    finite = lvd.metrics.finite_fraction(found)
    print(f"{kind}: mean error {error:.2f}, covered {coverage:.0%}, finite {finite:.0%}")
print("The promise is for molecules drawn like those of the table. Rings are not, and nothing holds for them")
print("unless the network's last layer happens to keep them apart. Label some before you predict more.")

# %% The widest interval, and the molecules behind it.
widest = int(np.argmax(intervals[:, 1, 0] - intervals[:, 0, 0]))
explanation = reg.explain(X_test[[widest]], n_neighbors=3)[0]
print(f"{X_test[widest]}: {explanation.sentence}")
for neighbor in explanation.evidence.neighbors:
    print(f"  {X_calib[neighbor.index]}: similarity {neighbor.similarity:.2f}, error {neighbor.score:.2f}")

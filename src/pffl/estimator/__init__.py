"""Fair linear models as scikit-learn estimators.

    clf = FairClassifier(bound=0.62).fit(X, y, sensitive_features=A)
    clf.predict(X_new), clf.group_loss_
    clf.certificate(X_test, y_test, sensitive_features=A_test)

Groups are needed for training and for certificates, never for predictions. All rows
given to `fit` are trained on.
"""

from pffl.estimator.classifier import FairClassifier as FairClassifier
from pffl.estimator.feasible import feasible_bound as feasible_bound
from pffl.estimator.regressor import FairRegressor as FairRegressor

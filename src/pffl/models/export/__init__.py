"""A trained model in forms that others read: coefficients, scikit-learn, ONNX."""

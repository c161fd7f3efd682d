"""The whole of detection in NumPy and OpenCV, apart from Raven: an oracle. Nothing here imports raven."""

"""Slow and plain versions of what `preceptor.data` does in whole batches."""

import numpy as np


def pad_crop_flip(image, draws, crop=True, flip=True):
    """One image (C, H, W): pad with black, cut out, mirror."""
    _, height, width = image.shape
    pad = round(min(height, width) / 8) if crop else 0
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
    top, left = int(draws[0] * (2 * pad + 1)), int(draws[1] * (2 * pad + 1))
    cut = padded[:, top : top + height, left : left + width]
    return cut[:, :, ::-1] if flip and draws[2] < 0.5 else cut


def bilinear_crop(image, left, top, width, height, size):
    """One image (C, H, W): sample the box at the centres of a size x size grid, without antialiasing."""
    _, rows, columns = image.shape
    out = np.zeros((image.shape[0], size, size))
    for i in range(size):
        for j in range(size):
            y = min(max(top + (i + 0.5) / size * height - 0.5, 0), rows - 1)
            x = min(max(left + (j + 0.5) / size * width - 0.5, 0), columns - 1)
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, rows - 1), min(x0 + 1, columns - 1)
            fy, fx = y - y0, x - x0
            out[:, i, j] = (
                image[:, y0, x0] * (1 - fy) * (1 - fx)
                + image[:, y0, x1] * (1 - fy) * fx
                + image[:, y1, x0] * fy * (1 - fx)
                + image[:, y1, x1] * fy * fx
            )
    return out

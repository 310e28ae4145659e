import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from preceptor.core import PreceptorError
from preceptor.data.augment import (
    OPERATIONS,
    Boxes,
    RandAugment,
    Shift,
    augmentation,
    crop_resize,
    random_boxes,
)
from preceptor.data.residence import shrink
from tests.oracles.data import bilinear_crop, pad_crop_flip


def images(batch=16, channels=3, height=12, width=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (batch, channels, height, width), dtype=torch.uint8, generator=generator)


def draws(batch, count, seed=1):
    return torch.rand(batch, count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "crop", "flip"),
    [("pad-crop-flip", True, True), ("pad-crop", True, False), ("flip", False, True)],
)
def test_shift_equals_one_image_at_a_time(name, crop, flip):
    batch, chance = images(64), draws(64, 3)
    wanted = [
        pad_crop_flip(image.numpy(), row.numpy(), crop, flip)
        for image, row in zip(batch, chance, strict=True)
    ]
    got = augmentation(name).apply(batch, chance)
    assert got.dtype == torch.uint8
    np.testing.assert_array_equal(got.numpy(), np.stack(wanted))
    assert not torch.equal(got, batch)


def test_shift_reaches_every_offset_and_both_sides():
    ramp = torch.arange(1, 65, dtype=torch.uint8).view(1, 1, 8, 8).expand(4000, 1, 8, 8)
    kinds = {image.numpy().tobytes() for image in Shift()(ramp, draws(4000, 3))}
    assert len(kinds) == 3 * 3 * 2  # a padding of 1 px gives 3 x 3 places


def test_boxes_lie_inside_and_have_the_asked_area():
    heights, widths = torch.full((5000,), 60.0), torch.full((5000,), 80.0)
    boxes = random_boxes(draws(5000, 4), heights, widths)
    assert (boxes.left >= 0).all()
    assert (boxes.top >= 0).all()
    assert (boxes.left + boxes.width <= widths + 1e-3).all()
    assert (boxes.top + boxes.height <= heights + 1e-3).all()
    share = boxes.width * boxes.height / (heights * widths)
    assert 0.079 < share.min() < 0.1
    assert 0.9 < share.max() <= 1.0001
    fits = (boxes.width < 79.9) & (boxes.height < 59.9)
    ratio = (boxes.width / boxes.height)[fits]
    assert 0.74 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.34


def test_crops_equal_one_image_at_a_time_and_never_see_beyond_the_image():
    canvases = images(6, 3, 20, 24)
    heights, widths = torch.tensor([20.0, 15, 9, 20, 7, 11]), torch.tensor([24.0, 10, 24, 9, 13, 20])
    boxes = random_boxes(draws(6, 4), heights, widths)
    got = crop_resize(canvases, boxes, heights, widths, 8)
    assert got.dtype == torch.uint8
    for index in range(6):
        image = canvases[index, :, : int(heights[index]), : int(widths[index])].numpy().astype(float)
        wanted = bilinear_crop(image, *(side[index].item() for side in boxes), 8)
        np.testing.assert_allclose(got[index].numpy(), wanted, atol=0.51)
    whole = random_boxes(
        torch.tensor([[1.0, 0.5, 0.0, 0.0]] * 6), torch.full((6,), 20.0), torch.full((6,), 20.0)
    )
    square = canvases[..., :20].contiguous()
    torch.testing.assert_close(
        crop_resize(square, whole, torch.full((6,), 20.0), torch.full((6,), 20.0), 20), square
    )


def test_enlarged_crops_never_see_beyond_the_image():
    canvases = torch.full((1, 1, 12, 12), 255, dtype=torch.uint8)
    canvases[:, :, :5, :6] = 0
    height, width = torch.tensor([5.0]), torch.tensor([6.0])
    whole = Boxes(torch.zeros(1), torch.zeros(1), width, height)
    assert crop_resize(canvases, whole, height, width, 24).max() == 0


def test_canvases_hold_small_images_as_they_are_shrink_large_ones_and_cut_panoramas():
    small = images(1, 3, 12, 10)[0].numpy()
    np.testing.assert_array_equal(shrink(small, 8), small)
    assert shrink(images(1, 3, 90, 60)[0].numpy(), 8).shape == (3, 24, 16)
    panorama = np.tile(np.arange(50, dtype=np.uint8), (1, 10, 1))
    np.testing.assert_array_equal(shrink(panorama, 5), panorama[:, :, 15:35])
    np.testing.assert_array_equal(
        shrink(panorama.transpose(0, 2, 1), 5), panorama.transpose(0, 2, 1)[:, 15:35]
    )


@pytest.mark.parametrize("name", list(OPERATIONS))
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_equal_torchvisions(name, negative, channels):
    theirs = v2.RandAugment()
    camel = "".join(part.capitalize() for part in name.split("-"))
    camel = {"Autocontrast": "AutoContrast"}.get(camel, camel)
    magnitudes, signed = theirs._AUGMENTATION_SPACE[camel]
    batch = images(3, channels, 32, 32)
    values = magnitudes(31, 32, 32)
    magnitude = 0.0 if values is None else float(values[9]) if values.ndim else 0.0
    change, ours_signed = OPERATIONS[name]
    assert ours_signed == signed
    if negative and not signed:
        return
    sign = -1 if negative else 1
    wanted = theirs._apply_image_or_video_transform(
        batch, camel, sign * magnitude, interpolation=v2.InterpolationMode.NEAREST, fill=theirs._fill
    )
    tolerance = 1 if name in ("color", "sharpness") else 0  # their magnitudes are rounded to float32
    torch.testing.assert_close(change(batch, 0.3 * sign), wanted, rtol=0, atol=tolerance)


def test_randaugment_treats_each_image_by_its_own_draws():
    batch, chance = images(64, 3, 16, 16), draws(64, 4)
    together = RandAugment()(batch, chance)
    alone = torch.cat([RandAugment()(batch[i : i + 1], chance[i : i + 1]) for i in range(64)])
    torch.testing.assert_close(together, alone, rtol=0, atol=0)
    changed = (together != batch).flatten(1).any(1).float().mean()
    assert changed > 0.8
    torch.testing.assert_close(batch, images(64, 3, 16, 16))  # the input is left alone


def test_names_combine_and_wrong_ones_are_answered():
    both = augmentation("pad-crop-flip+randaugment")
    assert both.draws == 3 + 4
    batch, chance = images(8, 3, 16, 16), draws(8, 7)
    torch.testing.assert_close(
        both.apply(batch, chance), RandAugment()(Shift()(batch, chance[:, :3]), chance[:, 3:])
    )
    assert augmentation("random-resized-crop+flip") == augmentation("random-resized-crop+flip")
    assert augmentation("random-resized-crop-flip").draws == 7
    assert augmentation(None).draws == 0
    assert augmentation(both) is both
    with pytest.raises(PreceptorError, match="no augmentation 'pad-crop-flop'; did you mean 'pad-crop-flip'"):
        augmentation("pad-crop-flop")

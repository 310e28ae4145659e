"""The batches a loader serves, to one process or shared out among several."""

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data import Loader, Task
from tests.data.batches import assert_same, batches


def task_of(x, classes=2):
    """A task that tests what it trains on."""
    labels = np.arange(len(x)) % classes
    return Task.from_arrays(x, labels, x, labels)


def toy(count=37, shape=(16, 16, 3), classes=4):
    generator = np.random.default_rng(0)
    return task_of(generator.integers(0, 256, (count, *shape), dtype=np.uint8), classes)


def test_evaluation_serves_everything_once_in_order():
    split = toy().test
    loader = Loader(split, 10, train=False, augment="pad-crop-flip")
    assert len(loader) == 4
    assert loader.input_shape == (3, 16, 16)
    got = batches(loader)
    assert [len(batch.images) for batch in got] == [10, 10, 10, 7]
    assert torch.cat([batch.indices for batch in got]).tolist() == list(range(37))
    assert all((batch.weights == 1).all() for batch in got)
    images = torch.cat([batch.images for batch in got])
    assert images.dtype == torch.float32
    torch.testing.assert_close(images, split.load(slice(None)).float() / 255)
    np.testing.assert_array_equal(torch.cat([batch.labels for batch in got]).numpy(), split.labels)


def test_training_shuffles_augments_and_fills_the_last_batch():
    split = toy().train
    loader = Loader(split, 10, train=True, seed=3, augment="pad-crop-flip")
    got = batches(loader)
    assert [len(batch.images) for batch in got] == [10, 10, 10, 10]
    assert [batch.weights.sum().item() for batch in got] == [10, 10, 10, 7]
    real = torch.cat([batch.indices[batch.weights > 0] for batch in got])
    assert sorted(real.tolist()) == list(range(37))
    assert real.tolist() != list(range(37))
    labels = torch.cat([batch.labels for batch in got])
    np.testing.assert_array_equal(
        labels.numpy(), split.labels[torch.cat([batch.indices for batch in got]).numpy()]
    )
    plain = batches(Loader(split, 10, train=True, seed=3))
    torch.testing.assert_close(plain[1].images, split.load(plain[1].indices).float() / 255)
    assert not torch.equal(plain[1].images, got[1].images)
    assert batches(loader, 1)[0].indices.tolist() != got[0].indices.tolist()


@pytest.mark.parametrize(
    "augment", ["none", "pad-crop-flip", "random-resized-crop-flip", "pad-crop-flip+randaugment"]
)
def test_same_seed_epoch_and_step_give_the_same_bits(augment):
    def make(seed=1):
        return Loader(toy().train, 8, train=True, seed=seed, augment=augment)

    first = batches(make(), epoch=2)
    assert_same(first, batches(make(), epoch=2))
    assert_same(first[3:], batches(make(), epoch=2, start=3))
    assert batches(make(), epoch=2, start=5) == []
    assert first[0].indices.tolist() != batches(make(seed=2), epoch=2)[0].indices.tolist()


def test_every_step_draws_its_own_numbers():
    x = np.tile(np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), dtype=np.uint8), (32, 1, 1, 1))
    split = task_of(x).train
    loader = Loader(split, 16, train=True, augment="pad-crop-flip")
    first, second = batches(loader)
    (third, _) = batches(loader, epoch=1)
    assert not torch.equal(first.images, second.images)
    assert not torch.equal(first.images, third.images)


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    batches(Loader(toy().train, 8, train=True, augment="random-resized-crop-flip+randaugment"))
    torch.testing.assert_close(torch.get_rng_state(), before)


def images_that_count(parts):
    """Index -> image of the rows that are no filling."""
    return {
        int(index): image
        for batch in parts
        for index, image, weight in zip(batch.indices, batch.images, batch.weights, strict=True)
        if weight
    }


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("train", [True, False])
def test_ranks_together_see_what_one_process_sees(world, train):
    options = {"train": train, "seed": 5, "augment": "random-resized-crop-flip+randaugment"}
    alone = batches(Loader(toy().train, 10, **options), epoch=1)
    parts = [
        batches(Loader(toy().train, 10, rank=rank, world_size=world, **options), epoch=1)
        for rank in range(world)
    ]
    for step, single in enumerate(alone):
        wanted, got = images_that_count([single]), images_that_count([part[step] for part in parts])
        assert set(got) == set(wanted)
        for index, image in got.items():
            torch.testing.assert_close(image, wanted[index], rtol=0, atol=0)


def test_uniform_images_are_brought_to_a_size():
    split = toy(shape=(20, 40, 3)).train
    batch = batches(Loader(split, 8, train=False, image_size=10))[0]
    assert batch.images.shape == (8, 3, 10, 10)
    whole = split.load([0]).float() / 255
    shorter = torch.nn.functional.interpolate(whole, size=(10, 20), mode="bilinear", antialias=True)
    wanted = shorter[..., 5:15]
    torch.testing.assert_close(batch.images[:1], wanted, atol=1.1 / 255, rtol=0)
    assert batches(Loader(split, 8, train=True))[0].images.shape == (8, 3, 20, 40)
    streamed = batches(Loader(split, 8, train=True, resident_bytes=0))
    assert_same(streamed, batches(Loader(split, 8, train=True)))


def test_vectors_and_their_noise():
    x = np.random.default_rng(0).normal(size=(400, 5)) * np.array([1, 1, 1, 10, 0])
    task = task_of(x)
    plain = batches(Loader(task.train, 100, train=True, seed=1))
    noisy = batches(Loader(task.train, 100, train=True, seed=1, augment="noise"))
    assert_same(noisy, batches(Loader(task.train, 100, train=True, seed=1, augment="noise")))
    torch.testing.assert_close(plain[0].images, task.train.load(plain[0].indices))
    difference = torch.cat([n.images - p.images for n, p in zip(noisy, plain, strict=True)])
    torch.testing.assert_close(
        difference.std(0), 0.1 * torch.from_numpy(x).float().std(0), rtol=0.15, atol=1e-6
    )
    assert Loader(task.train, 10, train=True).input_shape == (5,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "use a size of 1 or more"),
        ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
        ({"augment": "noise"}, "'noise' is for vectors"),
        ({"image_size": 0}, "image size 0 is too small"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(PreceptorError, match=message):
        Loader(toy().train, **{"batch_size": 4, "train": True, **options})


def test_wrong_uses(make_folder):
    vectors = task_of(np.ones((4, 2)))
    with pytest.raises(PreceptorError, match="vectors take 'none' or 'noise'"):
        Loader(vectors.train, 2, train=True, augment="flip")
    root = make_folder({"train/a": 2, "train/b": 2, "test/a": 1, "test/b": 1}, size=lambda n: (8 + n, 8))
    with pytest.raises(PreceptorError, match="differ in size; give an image_size"):
        Loader(Task(root).train, 2, train=True)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "augment", ["pad-crop-flip", "random-resized-crop-flip", "pad-crop-flip+randaugment"]
)
def test_the_device_changes_nothing_and_a_step_never_waits_for_it(augment):
    options = {"train": True, "seed": 2, "augment": augment}
    cpu = batches(Loader(toy().train, 8, **options))
    loader = Loader(toy().train, 8, device="cuda", **options)
    tolerance = 1.01 / 255 if "resized" in augment or "randaugment" in augment else 1e-7
    for one, two in zip(cpu, batches(loader), strict=True):
        torch.testing.assert_close(two.images.cpu(), one.images, rtol=0, atol=tolerance)
        assert two.indices.tolist() == one.indices.tolist()
    iterator = loader.epoch(0)
    next(iterator)
    if augment == "pad-crop-flip":
        torch.cuda.set_sync_debug_mode("error")
        try:
            next(iterator)
        finally:
            torch.cuda.set_sync_debug_mode("default")

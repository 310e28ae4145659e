"""Images of the training part that stand in the test part, too."""

from __future__ import annotations

from preceptor.data.split import Split


def repeated(train: Split, test: Split) -> list[str]:
    """What to tell of test images that are training images as well; nothing of vectors, whose rows may well agree."""
    if test.kind == "vectors":
        return []
    known = set(train.identities)
    count = sum(map(known.__contains__, test.identities))
    if not count:
        return []
    share = 100 * count / len(test)
    shown = "under 0.1 %" if share < 0.1 else f"{share:.1f} %" if share < 10 else f"{share:.0f} %"
    verb, these = ("is", "this one") if count == 1 else ("are", "these")
    return [
        f"{count} of the {len(test)} test images ({shown}) {verb} in the training part as well, pixel for pixel: for "
        f"{these} the accuracy says nothing about new images; where that is too many, take them out of one part"
    ]

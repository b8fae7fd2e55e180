"""The cases of strided.safetensors, for make_golden.py: copies from and to regular places."""

import torch.nn.functional as F


def strided(op):
    def add(case, kind, function, shape, images=False, **parameters):
        op.rng(case)
        op.gradients(case, lambda x: function(x), {"x": op.normal(*shape)}, images=("x",) if images else (), kind=kind,
                     **parameters)

    for case, shape, before, after, value in [("pad", (2, 3, 4, 3), (0, 1, 2, 0), (0, 2, 1, 0), 0.0),
                                              ("pad_all", (2, 3, 2), (1, 0, 2), (2, 1, 1), -1.5),
                                              ("pad_none", (5,), (0,), (0,), 1.0)]:
        sizes = [n for pair in reversed(list(zip(before, after))) for n in pair]
        add(case, 0, lambda x: F.pad(x, sizes, value=value), shape, before=before, after=after, value=value)
    for case, shape, dim, start, length in [("narrow", (2, 5, 3, 4), 1, 1, 3),
                                            ("narrow_channels", (2, 3, 2, 7), -1, 2, 4),
                                            ("narrow_batch", (5, 2, 3), 0, 2, 2),
                                            ("narrow_all", (3, 4), 1, 0, 4)]:
        add(case, 1, lambda x: x.narrow(dim, start, length), shape, dim=dim, start=start, length=length)
    for case, shape, dim, start, end, step in [("slice", (2, 7, 3), 1, 1, 6, 2),
                                               ("slice_negative", (3, 8), -1, -6, -1, 3),
                                               ("slice_end", (9, 2), 0, 2, 2**63 - 1, 4),
                                               ("slice_beyond", (4, 3), 0, -9, 99, 1),
                                               ("slice_one", (4, 3), 1, 2, 3, 9)]:
        cut = lambda x: x.movedim(dim, 0)[start:end:step].movedim(0, dim)
        add(case, 2, cut, shape, dim=dim, start=start, end=end, step=step)
    for case, shape, dims in [("permute", (2, 3, 4, 5), (0, 3, 1, 2)), ("permute_back", (2, 5, 3, 4), (0, 2, 3, 1)),
                              ("transpose", (3, 7), (1, 0)), ("permute_same", (2, 3, 4), (0, 1, 2)),
                              ("permute_six", (2, 3, 2, 2, 3, 2), (5, 0, -3, 1, 4, 2))]:
        add(case, 3, lambda x: x.permute(dims), shape, dims=dims)
    for case, shape, r in [("shuffle", (2, 3, 4, 8), 2), ("shuffle_three", (1, 2, 3, 18), 3),
                           ("shuffle_one", (2, 3, 2, 4), 1)]:
        add(case, 4, lambda x: F.pixel_shuffle(x, r), shape, True, r=r)
    for case, shape, r in [("unshuffle", (2, 4, 6, 3), 2), ("unshuffle_three", (1, 6, 3, 2), 3)]:
        add(case, 5, lambda x: F.pixel_unshuffle(x, r), shape, True, r=r)
    return op

"""Compiles the kernels that all workers of the tests need: two of them at once would compile them twice."""


def main():
    import torch

    from facetric.cli.errors import compile_kernels
    from facetric.losses import FacilityLocationLoss

    compile_kernels()
    FacilityLocationLoss()(torch.randn(32, 4, dtype=torch.float64), torch.arange(32) // 4)  # what gradients are checked in


if __name__ == "__main__":
    main()

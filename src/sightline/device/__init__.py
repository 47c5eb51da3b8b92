"""The device and nothing about models: copies, clocks, memory that runs out, graphs, kernels, work one step ahead."""

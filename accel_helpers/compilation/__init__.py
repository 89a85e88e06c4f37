"""What compilers do to a graph, where they fail, and how to find the operator that is to blame: experiments on a CPU and a GPU."""

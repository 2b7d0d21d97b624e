"""
Reproduce the paper
===================

Reproduce a figure of the paper in four steps, and then a table. The :doc:`reference </docs/reproduce>` describes every
experiment, every option and how to use a cluster.

See that it runs
----------------
The command has the same name as the function that this page calls:

.. code-block:: bash

    pip install -c constraints.txt -e '.[plots,digits]'   # in a clone
    pdeplus list experiments
    pdeplus reproduce fig_scale --size smoke

``pdeplus list experiments`` names every table and figure. ``smoke`` trains tiny networks on a few digits in seconds.
Its numbers mean nothing: they only show that your installation works, from training to the finished figure.
"""

import tempfile

import matplotlib.pyplot as plt

from pdeplus.studies.reproduction import reproduce

folder = reproduce("fig_scale", size="smoke", out=tempfile.mkdtemp())
print(*sorted(path.name for path in folder.iterdir()), sep="\n")

# %%
# The figure shows the mean σ of each ADD block, epoch by epoch.

figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
axis.imshow(plt.imread(folder / "scale.png"))
axis.set_axis_off()
plt.show()

# %%
# Estimate the cost
# -----------------
#
# .. code-block:: bash
#
#     pdeplus reproduce fig_scale --size small --dry-run
#
# This prints the networks to train, the hours on *this* machine (it times one step) and the disk space, and writes
# nothing. There are four :doc:`sizes </docs/reproduce>`: ``smoke`` is the one above, ``small`` takes an evening on
# a CPU, ``fast`` trains networks that converge, and ``full`` is the paper's own size and needs a GPU.
#
# Run it
# ------
#
# .. code-block:: bash
#
#     pdeplus data get cifar10
#     pdeplus reproduce fig_scale --size small
#
# Stop it whenever you like: the same command continues, and no finished network is trained twice, not even by another
# experiment that needs it. Several networks at once: ``--jobs 4``, or
# :doc:`a cluster </docs/reproduce>`.
#
# Read the result
# ---------------
# ``reproduced/small/fig_scale/result.md`` has the title with the size of the experiment, what to expect, the table and
# the figure; it ends with the command, commit, hardware and seeds. Compare it with
# :doc:`ours </results/small_networks/fig_scale/result>` in the repository.
#
# Three rules keep the comparison fair.
#
# - **The paper's values are in columns of their own.** They come from full-size networks. Between sizes, compare only
#   the order of the methods and the direction of an effect.
# - **Look at the seeds before the difference.** Networks trained alike differ by one to two points at ``small``. A
#   difference within the interval is not a result.
# - **Know which PDE+ you compare.** The paper, its authors' code and our default differ in some thirty places
#   (:doc:`fidelity </docs/fidelity>`). ``pdeplus train paper`` and ``pdeplus train authors`` train the first two.
#
# Next: ``pdeplus reproduce study_methods --size small`` compares all methods in one table, and
# ``pdeplus reproduce table1_cifar10`` reproduces Table 1. To make your own experiment, copy one of the packaged TOML
# files.

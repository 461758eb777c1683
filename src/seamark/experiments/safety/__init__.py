"""The safety benchmark: gates x learners x worlds x seeds. Does a run deploy a worse policy, and what does it earn?

Every value is exact, by enumeration of the world's contexts. A deployment is false when the policy that comes in is no
better than it may be: worse than the one that goes (where candidates are fixed and none is better: not better), on
average over the rounds that the gate judged it by. Only with drift does that average matter.
"""

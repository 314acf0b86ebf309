"""Golden files of two streams (tools/features.py)."""

from features import Feature


def golden(make, folder):
    model = make.language_model_case
    every = "leap,average,identity,additive,dot,metric"
    for chunk in (0, 5):
        model(folder, f"lm_reversible_case_chunk{chunk}", 2, "additive,dot", C=12, kind="reversible_language_model",
              reversible=1, chunk=chunk)
    model(folder, "lm_reversible", 6, every, reversible=1, window="0,3,0,5,0,0", mask="left", positions="none")
    model(folder, "lm_reversible_conv", 3, "additive,dot,leap", reversible=1, conv_kernel=3, conv_groups=2,
          values="own", positions="alibi", embedding_norm=1, final_norm=0)
    model(folder, "lm_reversible_chunk", 3, "additive,leap,dot", C=13, reversible=1, chunk=4, window="6,0,0",
          conv_kernel=4, mask="holes", label_smoothing=0.1)


FEATURE = Feature(golden=golden)

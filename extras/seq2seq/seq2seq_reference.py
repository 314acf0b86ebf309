"""Golden files of cross-attention, of networks with an encoder and of beam search (tools/features.py)."""

from features import Feature


def cross_case(make, folder, name, C, S, D, E, N, K, mask, biases=()):
    from reference_model import cross

    case = make.Case(name, "cross_attention", heads=N)
    H = N * K
    x = case.real("input.x_bcd", (3, C, D))
    memory = case.real("input.memory_bse", (3, S, E))
    shapes = {"query_hd": (H, D), "key_he": (H, E), "value_he": (H, E), "output_dh": (D, H)}
    shapes.update({bias: (D if bias == "output_bias_d" else H,) for bias in biases})
    weight = make.weights_of(case, shapes).get
    attention_mask = make.AttentionMask(causal=False, mask=case.mask(3, S, mask, "input.mask_bs"))
    case.finish(folder, {"y_bcd": cross(x, memory, weight, N, attention_mask)})


def encoder_network(make, case, C=6, V=11, D=12, K=None, S=7, U=13, hidden=None, biases=(), mask="right"):
    """The settings and weights of a network with an encoder, a source and its mask. U: tokens of the source."""
    layers = int(case.metadata["encoder_layers"]) + int(case.metadata["decoder_layers"])
    sizes = {"channels": D, "head_channels": K or 0, "hidden_channels": hidden or 0, "vocabulary_size": V, "context": C,
             "source_vocabulary_size": U, "source_context": S, "layers": layers,
             "attention_bias": int(bool(biases)), "positions": "learned", "mixer": "dot"}  # fmt: skip
    given = {key: str(value) for key, value in (sizes | case.metadata).items()}
    read = make.settings_of(given, {}, case.name, make.OF_CASES)
    weights = make.weights_of(case, make.network_shapes(read))
    source = case.fixed("input.source_bs", case.integers(0, U, (3, S)))
    return read, weights, source, case.mask(3, S, mask, "input.mask_bs")


def sequences_case(make, folder, name, encoder_layers, decoder_layers, N=2, C=6, V=11, sizes=None, **settings):
    """sizes: those of encoder_network."""
    case = make.Case(name, "seq2seq", encoder_layers=encoder_layers, decoder_layers=decoder_layers, heads=N, **settings)
    read, weights, source, source_mask = encoder_network(make, case, C, V, **(sizes or {}))
    tokens = case.fixed("input.tokens_bc", case.integers(0, V, (3, C)))
    targets = case.integers(0, V, (3, C))
    targets[0, -2:] = -100
    x = make.final_state(weights, read, tokens, source_bs=source, source_mask_bs=source_mask)
    logits = make.logits_of(x, weights, read)
    loss, _ = make.cross_entropy(logits, case.fixed("input.targets_bc", targets), settings.get("label_smoothing", 0))
    case.finish(folder, {"loss": loss, "logits_bcv": logits}, loss)


def beam_search(log_probabilities, width, most, begin, end, penalty):
    """beam_search.md: (tokens, score, log probability), best first. log_probabilities(tokens): of the next one."""
    live, finished = [((), 0.0)], []
    for _ in range(most):
        candidates = []
        for i, (tokens, so_far) in enumerate(live):
            for token, more in enumerate(log_probabilities((begin, *tokens))):
                candidates.append((-(so_far + more), i, token))
        kept = sorted(candidates)[: width - len(finished)]
        extended = [((*live[i][0], token), -lost) for lost, i, token in kept]
        finished += [each for each in extended if each[0][-1] == end]
        live = [each for each in extended if each[0][-1] != end]
        if not live:
            break
    found = [(tokens, p / ((5 + len(tokens)) / 6) ** penalty, p) for tokens, p in finished + live]
    return sorted(found, key=lambda each: -each[1])


def beam_case(make, folder, name, beam, penalty, most=6, begin=1, end=2, encoder_layers=1, decoder_layers=1, N=2,
              sizes=None, **settings):  # fmt: skip
    import torch

    case = make.Case(name, "beam_search", encoder_layers=encoder_layers, decoder_layers=decoder_layers, heads=N,
                     beam=beam, length_penalty=penalty, max_length=most, begin_token=begin, end_token=end,
                     **settings)  # fmt: skip
    read, weights, source, source_mask = encoder_network(make, case, most, **(sizes or {}))
    found = []
    for b in range(len(source)):
        mask = None if source_mask is None else source_mask[b : b + 1]

        def log_probabilities(tokens):
            tokens_bc, source_bs = torch.tensor([tokens]), source[b : b + 1]
            x = make.final_state(weights, read, tokens_bc, source_bs=source_bs, source_mask_bs=mask)
            return make.logits_of(x, weights, read)[0, -1].log_softmax(-1).tolist()

        found.append(beam_search(log_probabilities, beam, most, begin, end, penalty))
    tokens = [[list(h[0]) + [-1] * (most - len(h[0])) for h in hypotheses] for hypotheses in found]
    scores, logs = ([[h[i] for h in hypotheses] for hypotheses in found] for i in (1, 2))
    names = ("tokens_bmc", "score_bm", "log_probability_bm")
    case.write(folder, {name: torch.tensor(each).double() for name, each in zip(names, (tokens, scores, logs))})


def golden(make, folder):
    for mask in ("none", "right", "left", "holes"):
        cross_case(make, folder, f"cross_{mask}", 7, 10, 8, 6, 2, 5, mask, make.ATTENTION_BIASES)
    cross_case(make, folder, "cross_long_queries", 23, 4, 12, 9, 3, 3, "none")
    cross_case(make, folder, "cross_one_position", 1, 1, 5, 7, 1, 2, "none", ("value_bias_h",))
    sequences_case(make, folder, "seq2seq_defaults", 1, 1)
    for embeddings in ("separate", "target", "shared"):
        for place in ("pre", "post"):
            sizes = {"U": 11, "biases": make.ATTENTION_BIASES, "mask": "holes"}
            sequences_case(make, folder, f"seq2seq_{embeddings}_{place}", 2, 1, embeddings=embeddings, norm=place,
                           ffn_bias=1, label_smoothing=0.1, sizes=sizes)  # fmt: skip
    sequences_case(make, folder, "seq2seq_bahdanau", 1, 2, N=3, cross="bahdanau", positions="sinusoidal",
                   activation="relu", embedding_scale=3.5, logit_bias=1, sizes={"K": 5, "mask": "left"})  # fmt: skip
    sequences_case(make, folder, "seq2seq_mixers", 3, 3, mixer="additive,leap,bahdanau,metric,dot,average",
                   window="0,0,0,0,0,3", sizes={"hidden": 20, "S": 1, "mask": "none"})  # fmt: skip
    sequences_case(make, folder, "seq2seq_none_seen", 1, 1, embedding_norm=1, sizes={"S": 3, "mask": "left"})
    for beam, penalty in ((1, 0.0), (2, 0.6), (4, 1.0), (11, -0.5)):
        beam_case(make, folder, f"beam_{beam}", beam, penalty, logit_bias=1)
    beam_case(make, folder, "beam_short", 5, 0.6, most=2, logit_bias=1, embeddings="target")
    beam_case(make, folder, "beam_bahdanau", 3, 0.6, encoder_layers=2, decoder_layers=2, mixer="dot,dot,additive,leap",
              cross="bahdanau", positions="sinusoidal", sizes={"mask": "holes"})  # fmt: skip


FEATURE = Feature(golden=golden)

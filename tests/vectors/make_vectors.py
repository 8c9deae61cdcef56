#!/usr/bin/env python3
"""Conformance vectors: decode attention in float64, independent of the C++ reference; numpy only. README.md describes the files.

Usage: make_vectors.py OUT_DIR [SEED]     writes one JSON file a case.
Element values are integer codes in [-15, 15] times 1/8: exact in fp16, bf16 and e4m3; for int8 store the code and divide the KV scale by 8.
"""
import json, math, os, sys
import numpy as np

UNIT = 0.125


def visible(spec, b, row, length, q_len):
    """Tokens that query row `row` of request b may see."""
    pos = length - q_len + row
    prefix = max(length - q_len, 0)
    seen = list(range(prefix))
    for j in range(q_len):
        t = length - q_len + j
        if t < 0:
            continue
        if spec.get("mask") is not None:
            if j == row or (spec["mask"][b][row] >> j) & 1:
                seen.append(t)
        elif j <= row:
            seen.append(t)
    w = spec.get("sliding_window", 0)
    if w:
        seen = [t for t in seen if t > pos - w]
    return np.array(sorted(seen), dtype=int)


def attend(q, k, v, spec, h):
    s = (k @ q) * spec["qk_scale"] * spec.get("k_scale", 1.0)
    cap = spec.get("softcap", 0.0)
    if cap:
        s = cap * np.tanh(s / cap)
    sink = None if spec.get("sinks") is None else spec["sinks"][h]
    m = -math.inf
    if len(s):
        m = max(m, float(s.max()))
    if sink is not None:
        m = max(m, sink)
    if m == -math.inf:
        return np.zeros(v.shape[1]), -math.inf
    p = np.exp(s - m)
    z = float(p.sum()) + (math.exp(sink - m) if sink is not None else 0.0)
    out = (p @ v) * spec.get("v_scale", 1.0) / z if len(s) else np.zeros(v.shape[1])
    return out, m + math.log(z)


def case(name, rng, *, hq, hkv, d, page, lens, q_lens=None, dv=None, beam=1, layout="NHD", interleaved=False, garbage=False,
         spread=15, zero_q=False, own_v_table=False, **spec):
    dv = dv or d
    b_n, g = len(lens), hq // hkv
    q_lens = q_lens or [1] * b_n
    spec.setdefault("qk_scale", 1.0 / math.sqrt(d))
    codes = lambda *shape: rng.integers(-spread, spread + 1, size=shape)
    pages_per_seq = max(1, max(-(-max(l, 0) // page) if page else 1 for l in lens))
    cap = pages_per_seq * page if page else max(max(lens), 1)
    seqs = b_n * beam
    # logical KV of each (request, beam): [seqs, cap, hkv, d]
    k_log, v_log = codes(seqs, cap, hkv, d), codes(seqs, cap, hkv, dv)
    if spec.get("mla"):
        v_log = k_log[..., :dv]
    if page:
        n_pages = seqs * pages_per_seq + 3
        perm = rng.permutation(n_pages)[: seqs * pages_per_seq].reshape(seqs, pages_per_seq)
        while own_v_table and n_pages % 7 == 0:
            n_pages += 1
        table = np.full((seqs, pages_per_seq), -1, dtype=int)
        v_table = np.full((seqs, pages_per_seq), -1, dtype=int)
        kp, vp = np.zeros((n_pages, page, hkv, d), dtype=int), np.zeros((n_pages, page, hkv, dv), dtype=int)
        for s in range(seqs):
            used = -(-max(lens[s // beam], 0) // page)
            for p in range(used):
                table[s, p] = perm[s, p]
                kp[perm[s, p]] = k_log[s, p * page:(p + 1) * page]
                v_page = (perm[s, p] * 7 + 3) % n_pages if own_v_table else perm[s, p]
                if own_v_table:
                    v_table[s, p] = v_page
                vp[v_page] = v_log[s, p * page:(p + 1) * page]
    else:
        table, kp, vp = None, k_log, v_log
    axes = (0, 2, 1, 3) if layout == "HND" else (0, 1, 2, 3)
    kp, vp = kp.transpose(axes), vp.transpose(axes)
    rows = sum(q_lens)
    q = codes(rows, beam, hq, d) * (0 if zero_q else 1)
    indir = ctx = None
    if beam > 1:
        ctx = [max(1, l // 2) for l in lens]
        indir = rng.integers(0, beam, size=(b_n, beam, cap))
    out = np.zeros((rows, beam, hq, dv))
    lse = np.zeros((rows, beam, hq))
    r = 0
    for b in range(b_n):
        for i in range(q_lens[b]):
            for w in range(beam):
                vis = visible(spec, b, i, lens[b], q_lens[b])
                for h in range(hq):
                    kv = h // g
                    if beam == 1:
                        src = np.full(len(vis), b)
                    else:
                        src = np.array([b * beam + (0 if t < ctx[b] else indir[b, w, t]) for t in vis], dtype=int)
                    kk = k_log[src, vis, kv].astype(float) * UNIT if len(vis) else np.zeros((0, d))
                    vv = v_log[src, vis, kv].astype(float) * UNIT if len(vis) else np.zeros((0, dv))
                    o, l = attend(q[r, w, h].astype(float) * UNIT, kk, vv, spec, h)
                    out[r, w, h], lse[r, w, h] = o, l
            r += 1
    mask_words = None
    if spec.get("mask") is not None:
        mask_words = []
        for b in range(b_n):
            words = -(-max(q_lens) // 32)  # one row stride for the launch, from its longest draft
            for i in range(q_lens[b]):
                m = spec["mask"][b][i]
                mask_words.append([(m >> (32 * x)) & 0xFFFFFFFF for x in range(words)])
    fin = lambda x: [("-inf" if y == -math.inf else y) for y in np.asarray(x, dtype=float).reshape(-1).tolist()]
    doc = {
        "name": name, "unit": UNIT,
        "params": {"num_q_heads": hq, "num_kv_heads": hkv, "head_dim": d, "head_dim_v": dv, "page_size": page, "beam_width": beam, "kv_layout": layout,
                   "kv_interleaved": interleaved, "garbage_in_unused_slots": garbage, "mla": bool(spec.get("mla")),
                   "sliding_window": spec.get("sliding_window", 0), "softcap": spec.get("softcap", 0.0), "qk_scale": spec["qk_scale"],
                   "k_scale": spec.get("k_scale", 1.0), "v_scale": spec.get("v_scale", 1.0),
                   "spec_dec": "none" if max(q_lens) <= 1 and min(q_lens) == 1 else ("tree" if mask_words else "linear")},
        "seq_lens": lens, "q_lens": q_lens, "page_table": None if table is None else table.tolist(),
        "v_page_table": v_table.tolist() if page and own_v_table else None, "sinks": spec.get("sinks"),
        "packed_mask": mask_words, "ctx_lens": ctx, "cache_indirection": None if indir is None else indir.reshape(-1).tolist(),
        "q_shape": list(q.shape), "q": q.reshape(-1).tolist(), "k_shape": list(kp.shape), "k": kp.reshape(-1).tolist(),
        "v_shape": list(vp.shape), "v": vp.reshape(-1).tolist(),
        "out": [float(f"{x:.9g}") for x in out.reshape(-1)], "lse": [x if isinstance(x, str) else float(f"{x:.9g}") for x in fin(lse)],
    }
    return doc


def tree(rng, n):
    """Random ancestor bit masks of a draft tree with n nodes, node 0 the root."""
    masks = [1]
    for i in range(1, n):
        masks.append(masks[int(rng.integers(0, i))] | (1 << i))
    return masks


def main():
    out, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng = np.random.default_rng(seed)
    j = lambda lo, hi: int(rng.integers(lo, hi + 1))
    docs = []
    add = lambda name, **kw: docs.append(case(name, rng, **kw))
    sinks8 = [-5.0, 0.0, 3.0, 10.0, -1.5, 0.25, 1.0, 2.0]
    trees = lambda *ns: [tree(rng, n) for n in ns]
    full = lambda *ns: [[(1 << n) - 1] * n for n in ns]
    add("plain", hq=8, hkv=2, d=32, page=16, lens=[1, 16, 17, 40 + j(0, 9)])
    add("plain_hnd", hq=8, hkv=2, d=64, page=8, lens=[7, 8, 9, 33 + j(0, 9)], layout="HND")
    add("mha_group_1", hq=4, hkv=4, d=32, page=16, lens=[j(2, 40), 31])
    add("group_7_head_80", hq=14, hkv=2, d=80, page=16, lens=[j(20, 60), 5])
    add("group_71", hq=71, hkv=1, d=64, page=16, lens=[j(10, 30), 33])
    add("group_128", hq=128, hkv=1, d=32, page=32, lens=[j(10, 40)])
    add("head_256", hq=4, hkv=2, d=256, page=32, lens=[j(1, 70), 65])
    add("contiguous", hq=8, hkv=2, d=32, page=0, lens=[3, 21, j(1, 40)])
    add("contiguous_hnd_garbage", hq=8, hkv=2, d=32, page=0, lens=[3, 21, j(1, 40)], layout="HND", garbage=True)
    add("interleaved_pool", hq=8, hkv=2, d=32, page=16, lens=[18, j(1, 50)], interleaved=True)
    add("own_v_table", hq=8, hkv=2, d=32, page=8, lens=[18, j(10, 50)], own_v_table=True)
    add("garbage_slots", hq=8, hkv=2, d=64, page=16, lens=[13, 1, j(17, 47)], garbage=True)
    add("window", hq=8, hkv=2, d=32, page=16, lens=[3, 5, 6, 33, j(40, 70)], sliding_window=5)
    add("window_1", hq=4, hkv=1, d=32, page=8, lens=[1, 2, 9, j(10, 30)], sliding_window=1)
    add("window_page_edge", hq=8, hkv=2, d=32, page=16, lens=[16, 17, 32, 48], sliding_window=16)
    add("sinks", hq=8, hkv=2, d=32, page=16, lens=[1, 40, j(5, 50)], sinks=sinks8)
    add("sinks_window_empty", hq=8, hkv=2, d=64, page=16, lens=[0, 64, 17], sinks=sinks8, sliding_window=7)
    add("sinks_extreme", hq=4, hkv=1, d=32, page=16, lens=[9, 0], sinks=[-1e30, 1e4, 88.0, -88.0])
    add("softcap_window", hq=8, hkv=2, d=32, page=16, lens=[10, 37, j(20, 60)], softcap=5.0, sliding_window=9, qk_scale=2.0)
    add("scales", hq=8, hkv=2, d=32, page=16, lens=[12, j(20, 50)], k_scale=0.5, v_scale=2.0, qk_scale=0.3)
    add("scales_softcap_sinks_window", hq=8, hkv=2, d=32, page=16, lens=[12, j(20, 50)], k_scale=4.0, v_scale=0.25, qk_scale=0.5, softcap=4.0,
        sinks=sinks8, sliding_window=11)
    add("empty", hq=8, hkv=2, d=32, page=16, lens=[0, 5, 0, j(10, 40)])
    add("spec_linear", hq=8, hkv=2, d=32, page=16, lens=[4, 5, 16, 35 + j(0, 9)], q_lens=[4] * 4)
    add("spec_linear_hnd_garbage", hq=8, hkv=2, d=32, page=8, lens=[5, 23], q_lens=[3] * 2, layout="HND", garbage=True)
    add("spec_linear_window", hq=8, hkv=2, d=32, page=16, lens=[8, 9, 17, 40], q_lens=[8] * 4, sliding_window=4)
    add("spec_linear_longer_than_cache", hq=8, hkv=2, d=32, page=16, lens=[3, 6], q_lens=[5, 5], sinks=sinks8)
    add("spec_linear_64", hq=4, hkv=2, d=32, page=16, lens=[64, 90], q_lens=[64] * 2)
    add("spec_tree", hq=8, hkv=2, d=32, page=16, lens=[6, 20, 33], q_lens=[6] * 3, mask=trees(6, 6, 6))
    add("spec_full_mask", hq=8, hkv=2, d=32, page=16, lens=[5, 30], q_lens=[5] * 2, mask=full(5, 5))
    add("spec_tree_two_words", hq=4, hkv=1, d=32, page=16, lens=[35, 50], q_lens=[35] * 2, mask=trees(35, 35))
    add("spec_tree_self_bit_clear", hq=4, hkv=2, d=32, page=16, lens=[7, 19], q_lens=[7] * 2,
        mask=[[m & ~(1 << i) for i, m in enumerate(tree(rng, 7))] for _ in range(2)])
    add("spec_tree_ragged", hq=4, hkv=2, d=32, page=16, lens=[40, 7, 12], q_lens=[34, 0, 5], mask=trees(34, 1, 5))
    add("spec_ragged", hq=8, hkv=2, d=32, page=16, lens=[9, 1, 30, 22], q_lens=[0, 1, 3, 5])
    add("spec_sinks_softcap", hq=8, hkv=2, d=32, page=16, lens=[7, 30], q_lens=[3, 3], sinks=sinks8, softcap=3.0, qk_scale=1.0)
    add("beam_4", hq=8, hkv=2, d=32, page=16, lens=[6, 20 + j(0, 20)], beam=4)
    add("beam_2_sinks", hq=4, hkv=1, d=64, page=8, lens=[17, j(5, 15)], beam=2, sinks=[0.5, -1.0, 2.0, 0.0])
    add("beam_3_window_garbage", hq=4, hkv=2, d=32, page=8, lens=[9, j(12, 30)], beam=3, sliding_window=6, garbage=True)
    add("mla_16_heads", hq=16, hkv=1, d=576, dv=512, page=64, lens=[5, 70], mla=True, qk_scale=0.1352337788608801, spread=4)
    add("equal_keys_mean", hq=4, hkv=1, d=32, page=16, lens=[j(30, 60)], zero_q=True)
    os.makedirs(out, exist_ok=True)
    for d in docs:
        with open(os.path.join(out, d["name"] + ".json"), "w") as f:
            json.dump(d, f, separators=(",", ":"))
    print(len(docs), "vectors in", out)


if __name__ == "__main__":
    main()

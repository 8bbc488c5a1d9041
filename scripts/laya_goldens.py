"""Makes tests/fixtures/laya/goldens of the checkpoint that scripts/laya_fixture.py made: what the published modules compute
of it in float32.

    python scripts/laya_goldens.py        # with the packages of scripts/requirements-goldens.txt

golden_L<length>.safetensors is one question at one length: the graph's inputs embeddings [1, C, 1, L], full_mask and
local_mask [1, L, 1, L] (key, 1, query), type_vectors [1, C, 1, 1] and marker_map [1, L, 1, 32]; the rows they are made from,
input_ids and attention_mask [1, L], marker_pos and marker_mask [1, 32] and qtype [1] (int32); and the outputs logits [1, 32]
(-1e4 in slots with no option), cls [1, C, 1, 1] and action [1, A], the action head's logits. Its metadata names the SHA-256
of the weights.

questions.json is a set of questions on texts, each with the sequence that the published host lays out, no longer than the
agent's own limit, and with the logits of its options and of the actions.
"""
import hashlib
import json

import torch
from laya_coreml import common, inputs
from laya_coreml.torch_model import load_model
from laya_fixture import AGENT, LONG, OUT, REQUESTS, Host, compact
from safetensors.torch import save_file

GOLDENS, WINDOW, SLOTS = OUT / "goldens", 16, 32
TEAMS = ["billing", "support", "shipping", "sales", "legal", "returns", "press", "stock", "travel", "hiring", "the board"]
# Length, tokens in it, options, kind. No request of the third kind has eleven options: it is calibrated by its kind alone.
SHAPES = [(96, 77, 5, 0), (192, 150, 11, 2)]
# A case: its requests by name; all are asked of the first's state.
CASES = [
    ["two labels", "options in another order", "a number for a state"],
    ["german, described labels"],
    ["japanese and chinese"],
    ["arabic and hebrew"],
    ["hindi and thai, own labels"],
    ["russian score"],
    ["score of seven levels"],
    ["empty state", "scalar labels"],
    ["structured state"],
    ["conversation, newest last"],
    ["32 options"],
    ["12 options, alike once cut"],
    ["true first", "levels in another order"],
    ["emoji and joined signs", "one option"],
]


def digest():
    return hashlib.sha256((OUT / "model.safetensors").read_bytes()).hexdigest()


def golden(host, length, tokens, options, kind):
    question = dict(t="choice", ins="Which team should take this request?", crit={team: None for team in TEAMS[:options]})
    ids, markers = common.build_sequence(host.tok, LONG * 9, question, tokens, AGENT["head_max_len"])
    assert (len(ids), len(markers)) == (tokens, options)
    item = dict(ids=ids, markers=markers, qtype=kind)
    rows = {k: torch.from_numpy(v) for k, v in inputs.collate_items([item], host.tok.pad_token_id, shape=host.shape).items()}
    model, valid, kinds = load_model(OUT, length), rows["attention_mask"].bool(), rows["qtype"]
    at = torch.arange(length)
    near = (at[:, None] - at[None]).abs() <= WINDOW // 2
    full = valid[0][:, None].expand(length, length)
    local = full & (near | ~valid[0][None])
    additive = lambda mask: torch.where(mask, 0.0, -1e4)[None, :, None]
    chosen = torch.zeros(1, length, 1, SLOTS)
    chosen[0, markers, 0, torch.arange(options)] = 1
    logits, action = model(rows["input_ids"], valid, rows["marker_pos"], rows["marker_mask"], kinds)
    hidden = model.encoder(rows["input_ids"], valid) + model.type_emb(kinds)[:, None]
    tensors = {
        "embeddings": model.encoder.embeddings.tok_embeddings(rows["input_ids"]).transpose(1, 2)[:, :, None],
        "full_mask": additive(full),
        "local_mask": additive(local),
        "type_vectors": model.type_emb(kinds)[:, :, None, None],
        "marker_map": chosen,
        "logits": logits,
        "cls": model.head(hidden, valid[:, None, None])[:, :1].transpose(1, 2)[:, :, None],
        "action": action,
        **rows,
    }
    metadata = {"source_sha256": digest(), "reference": f"laya-coreml 0.5.1, torch {torch.__version__}, float32"}
    save_file({k: v.contiguous() for k, v in tensors.items()}, GOLDENS / f"golden_L{length}.safetensors", metadata=metadata)
    print(length, tokens, markers, logits[0, :options].tolist(), action[0].tolist())


def questions(host):
    requests = {name: (state, question) for name, state, question in REQUESTS}
    cases = []
    for names in CASES:
        state = requests[names[0]][0]
        case = dict(name=names[0], state=state, questions={f"q{i}": requests[name][1] for i, name in enumerate(names)}, items=[], logits=[], action_logits=[])
        for question in case["questions"].values():
            found = host.answer(state, question)
            case["items"].append(dict(ids=found["ids"], markers=found["markers"], qtype=common.QTYPES[question["type"]]))
            for key in ["logits", "action_logits"]:
                case[key].append(compact(found[key]))
        cases.append(json.dumps(case, ensure_ascii=False))
    head = f'{{"source_weights_sha256": "{digest()}",\n"cases": [\n'
    (GOLDENS / "questions.json").write_text(head + ",\n".join(cases) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    GOLDENS.mkdir(exist_ok=True)
    hosts = {length: Host(length) for length, *_ in SHAPES}
    for shape in SHAPES:
        golden(hosts[shape[0]], *shape)
    questions(hosts[192])
    assert sum(f.stat().st_size for f in GOLDENS.iterdir()) < 1_500_000

"""Makes tests/fixtures/laya: a small seeded decision model, and what the published host code answers with it.

    python scripts/laya_fixture.py        # with the packages of scripts/requirements-goldens.txt

The checkpoint has the published layout: encoder/config.json, rl_agent_config.json, model.safetensors (fp16, temperature
fp32) and tokenizer/, a byte-level BPE trained here on a few lines of many scripts of writing.

requests.json has for each request the tokens it needs when nothing is cut (`needed`; null where it is refused), and for
each length of the graph what the published host makes of it: the sequence, the graph's logits and cls (PyTorch in
float32 stands in for the graph), the action's logits and probabilities, and the answer without its rounding. Where the
host refuses, `error` is the class and `message` the text.
"""
import json
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from laya_coreml import common, inputs, runtime
from laya_coreml.tokenizer import Tokenizer
from laya_coreml.torch_model import DecisionModel, load_model
from safetensors.torch import save_file
from tokenizers import Tokenizer as Backend, decoders, models, pre_tokenizers, trainers

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "laya"
LENGTHS = [96, 192]
SPECIAL = ["[PAD]", "[SEP]", "[CLS]", "[UNK]", "[MASK]"]
ENCODER = dict(model_type="modernbert", vocab_size=512, hidden_size=128, intermediate_size=96, num_hidden_layers=4,
               num_attention_heads=2, local_attention=16, global_attn_every_n_layers=3, hidden_activation="gelu",
               norm_eps=1e-5, norm_bias=False, attention_bias=False, mlp_bias=False, global_rope_theta=160000.0,
               local_rope_theta=10000.0)
# The sequence's limit lies between the lengths; one temperature of either kind is outside what is taken.
AGENT = dict(head_layers=2, act_costs={"escalate": 0.3, "gather": 0.1}, max_len=160, head_max_len=80,
             temperature=[0.8, 7.0, 1.3],
             temperature_by_options={"choice:2": 0.1, "choice:3-5": 1.7, "choice:11+": 0.6, "score:6-10": 2.5, "noul:2": 1.2})
CORPUS = """
choice question: which team should take this request? score question: how urgent is this message? noul question: is it true?
level 0: not at all level 1: a little level 2: clearly false: no, the statement does not hold true: yes, the statement holds
The invoice was paid twice and the customer wants the second payment back before Friday.
Die Lieferung kam zu spät, und der Kunde möchte für die Größe Ersatz. Où est la clé de la réunion d'août?
Счёт был оплачен дважды, и клиент просит вернуть деньги. Ο λογαριασμός πληρώθηκε δύο φορές.
請求書は二回支払われました。お客様は返金を希望しています。 发票已经付了两次，客户要求退款。 영수증이 두 번 결제되었습니다.
دفعت الفاتورة مرتين ويريد العميل استرداد المبلغ. החשבון שולם פעמיים והלקוח מבקש החזר.
बिल का भुगतान दो बार हुआ और ग्राहक पैसे वापस चाहता है। ใบแจ้งหนี้ถูกชำระสองครั้ง ลูกค้าต้องการเงินคืน
{"role": "user", "content": "hello"}, {"total": 12.5, "items": [1, 2, 3]}
"""
LONG = "The customer wrote again about the second payment and asked when it would be returned. "
# A request: name, state, question.
REQUESTS = [
    ("two labels", "The invoice was paid twice.", dict(type="choice", instructions="Which team?", criteria=["billing", "support"])),
    ("german, described labels", "Die Lieferung kam zu spät, die Größe stimmt nicht.",
     dict(type="choice", instructions="Wer übernimmt?", criteria={"Versand": "Pakete & Fristen", "Lager": None, "Kasse": "", "Büro": 0, "Chef": {"nur": ["Notfälle", 1.5]}})),
    ("japanese and chinese", "請求書は二回支払われました。发票已经付了两次。", dict(type="choice", instructions="返金?", criteria=["はい", "いいえ", "不明"])),
    ("arabic and hebrew", "دفعت الفاتورة مرتين. החשבון שולם.", dict(type="noul", instructions="هل دفعت مرتين؟")),
    ("hindi and thai, own labels", "बिल का भुगतान दो बार हुआ। ชำระสองครั้ง",
     dict(type="noul", instructions="Paid twice?", criteria={"True": "दो बार", "FALSE": ["once", None]}, labels={"true": " हाँ ", "false": "नहीं"})),
    ("russian score", "Счёт был оплачен дважды!", dict(type="score", instructions="Насколько срочно?", criteria=["нет", "немного", "срочно", "очень"])),
    ("score of seven levels", "Ο λογαριασμός πληρώθηκε.", dict(type="score", instructions="Level?", criteria=["none", 1, 2.5, True, {"a": "β"}, ["x"], ""])),
    ("empty state", "", dict(type="choice", instructions="Anything?", criteria=["yes", "no", "perhaps"])),
    ("structured state", {"total": 1e16, "tax": 1e-05, "rate": 0.0001, "sum": 1.2345678901234568e+17, "n": -0.5, "whole": 3.0, "id": 18446744073709551615,
                          "text": "a \"quote\"\\ \n\t\u0001\u007f é 漢", "nested": [None, True, [], {}]},
     dict(type="choice", instructions={"ask": "team?", "weights": [1e22, 5e-324]}, criteria=["billing", "support"])),
    ("conversation, newest last", [{"role": "user", "content": LONG * 3}, {"role": "agent", "content": "Später – 明日"}, {"role": "user", "content": "Now!"}],
     dict(type="noul", instructions="Is the customer angry?")),
    ("a long text", LONG * 9, dict(type="score", instructions="How urgent?", criteria=["low", "high"])),
    ("just past 96", LONG * 2 + "Today. " * 5, dict(type="noul", instructions="Is a payment mentioned?", criteria={"true": "payment"})),
    ("32 options", "Number 17", dict(type="choice", instructions="Which number?", criteria=[f"{i} of all" for i in range(32)])),
    ("32 letters", "Letter Q", dict(type="choice", instructions="Which?", criteria=[chr(65 + i) for i in range(32)])),
    ("33 options", "Number 17", dict(type="choice", instructions="Which number?", criteria=[f"{i}" for i in range(33)])),
    ("12 options, alike once cut", "Kiste 3", dict(type="choice", instructions="Which box is it, of all that stand in the yard behind the house?",
                                                  criteria={f"box in the yard behind the house {i}": None for i in range(12)})),
    ("descriptions past 48 tokens", "short", dict(type="choice", instructions="Pick", criteria={"a": LONG * 2, "b": LONG * 3})),
    ("long instructions", "short", dict(type="noul", instructions=LONG * 2)),
    ("options in another order", "The parcel is late.", dict(type="choice", instructions="Team?", criteria=["billing", "support", "shipping", "sales"], option_order=[2, 0, 3, 1])),
    ("levels in another order", "Soon, please.", dict(type="score", instructions="How urgent?", criteria=["low", "middle", "high"], option_order=[1, 2, 0])),
    ("true first", "Paid on Monday.", dict(type="noul", instructions="Paid?", labels={"false": "open", "true": "paid"}, option_order=[1, 0])),
    ("scalar labels", "Two and a half", dict(type="choice", instructions="How many?", criteria=[1, 2.5, False, "many", 1e16])),
    ("mask in every text", "a [MASK] b[SEP]c", dict(type="choice", instructions="What [MASK] is it?", criteria={"[MASK]": "x[MASK]y", "b": "[CLS]"})),
    ("one option", "Whatever", dict(type="choice", instructions="Pick", criteria=["only"])),
    ("emoji and joined signs", "👩‍👩‍👧 e\u0301 🇯🇵", dict(type="choice", instructions="🙂 or 🙁?", criteria={"🙂": "good 👍🏽", "🙁": "bad"})),
    ("a number for a state", 12.5, dict(type="noul", instructions=7)),
    ("a label twice", "x", dict(type="choice", instructions="Pick", criteria=["a", "b", "a"])),
    ("labels that compare equal", "x", dict(type="choice", instructions="Pick", criteria=[1, "a", 1.0])),
    ("true and one", "x", dict(type="choice", instructions="Pick", criteria=[True, 1])),
    ("no state", None, dict(type="noul", instructions="Paid?")),
    ("blank instructions", "x", dict(type="noul", instructions=" \u001c\u00a0")),
    ("no instructions", "x", dict(type="noul")),
    ("unknown type", "x", dict(type="bool", instructions="Paid?")),
    ("labels of a choice", "x", dict(type="choice", instructions="Pick", criteria=["a", "b"], labels=None)),
    ("labels that are one", "x", dict(type="noul", instructions="Paid?", labels={"false": "a", "true": " a"})),
    ("a level that is null", "x", dict(type="score", instructions="Rate", criteria=["low", None])),
    ("order of too few", "x", dict(type="choice", instructions="Pick", criteria=["a", "b"], option_order=[0])),
    ("order with a fraction", "x", dict(type="choice", instructions="Pick", criteria=["a", "b"], option_order=[0, 1.0])),
    ("criteria of neither answer", "x", dict(type="noul", instructions="Paid?", criteria={"yes": "paid"})),
    ("no options", "x", dict(type="choice", instructions="Pick", criteria={})),
    ("a null label", "x", dict(type="choice", instructions="Pick", criteria=["a", None])),
]


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def train_tokenizer():
    backend = Backend(models.BPE(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=ENCODER["vocab_size"], special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    backend.train_from_iterator(CORPUS.splitlines(), trainer)
    assert backend.get_vocab_size() == ENCODER["vocab_size"]
    # What a checkpoint may say here is not heeded.
    backend.enable_padding(pad_id=0, pad_token="[PAD]", length=8)
    backend.enable_truncation(max_length=8)
    (OUT / "tokenizer").mkdir(parents=True, exist_ok=True)
    backend.save(str(OUT / "tokenizer" / "tokenizer.json"))
    names = dict(zip(["pad_token", "sep_token", "cls_token", "unk_token"], SPECIAL))
    write(OUT / "tokenizer" / "tokenizer_config.json", {**names, "mask_token": {"content": "[MASK]", "lstrip": False}})


def make_checkpoint():
    write(OUT / "encoder" / "config.json", ENCODER)
    write(OUT / "rl_agent_config.json", AGENT)
    torch.manual_seed(8)
    model = DecisionModel(ENCODER, AGENT, max(LENGTHS))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim >= 2:
                p.normal_(0, (6.0 if name in ("scorer.3.weight", "act_head.2.weight") else 1.0) / math.sqrt(p.shape[-1]))
            elif name.endswith("weight"):
                p.normal_(1, 0.1)
            else:
                p.normal_(0, 0.05)
    save_file({k: v if k == "temperature" else v.half() for k, v in model.state_dict().items()}, OUT / "model.safetensors")


class Host(runtime.RuntimeMixin):
    """The published host around a graph of one length."""

    def __init__(self, length):
        self.cfg = json.loads((OUT / "rl_agent_config.json").read_text())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.temperature, self.temperature_by_options, self.temperature_raw, self.temperature_by_options_raw = common.read_temperatures(self.cfg)
        self.tok = Tokenizer(OUT / "tokenizer")
        self.batch_size, self.pad_to_multiple, self.model_id = 1, 16, "fixture"
        self.shape = dict(batch_size=1, max_length=length, min_length=length, max_options=32, flexible=False, lengths=None)
        self._init_host()
        self.graph = load_model(OUT, length)

    def forward(self, batch):
        ids, valid, markers, selected, qtype = (torch.from_numpy(batch[k]) for k in ["input_ids", "attention_mask", "marker_pos", "marker_mask", "qtype"])
        with torch.no_grad():
            logits, action = self.graph(ids, valid, markers, selected, qtype)
            hidden = self.graph.encoder(ids, valid.bool()) + self.graph.type_emb(qtype)[:, None]
            self.cls = self.graph.head(hidden, valid.bool()[:, None, None, :])[0, 0].numpy()
        self.action_logits = action[0].numpy()
        return logits.numpy(), self.action_logits[None]

    def answer(self, state, question):
        items, internal = self.prepare(state, {"q": question})
        logits, action = self._forward(common.collate_items([items], self.tok.pad_token_id))
        answer = self._decode_answers(logits, action, items, ["q"], {"q": internal[0]}, 0)["q"]
        item, k = items[0], len(items[0]["markers"])
        return dict(ids=item["ids"], markers=item["markers"], options=item["options"], state=item["state_stats"], logits=floats(logits[0, :k]),
                    cls=floats(self.cls), action_logits=floats(self.action_logits), action=floats(action[0]), answer=answer)


def floats(values):
    return [float(v) for v in np.asarray(values, dtype=np.float32)]


def compact(value):
    """Numbers to nine digits: an f32 exactly."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {k: compact(v) for k, v in value.items()}
    return [compact(v) for v in value] if isinstance(value, list) else value


def needed(host, state, question):
    try:
        host._check_question("q", question)
        q = host._to_internal(question)
        ids, _ = common.build_sequence(host.tok, state, q, 1 << 30, AGENT["head_max_len"], option_order=q.get("option_order"))
        return len(ids) if state is not None else None
    except (ValueError, TypeError):
        return None


def main():
    train_tokenizer()
    make_checkpoint()
    runtime.round = lambda value, digits: value  # answers as they are before they are rounded
    hosts = {length: Host(length) for length in LENGTHS}
    lines = []
    for name, state, question in REQUESTS:
        record = dict(name=name, state=state, question=question, needed=needed(hosts[96], state, question), at={})
        for length, host in hosts.items():
            try:
                record["at"][str(length)] = compact(host.answer(state, question))
            except (ValueError, TypeError) as refusal:
                record["at"][str(length)] = dict(error=type(refusal).__name__, message=str(refusal))
        lines.append(json.dumps(record, ensure_ascii=False))
        shown = {l: r.get("message") or (len(r["ids"]), r["options"], r["answer"].get("choice") or r["answer"]["confidence"]) for l, r in record["at"].items()}
        print(name, record["needed"], shown)
    (OUT / "requests.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    assert sum(f.stat().st_size for f in OUT.rglob("*") if f.is_file()) < 2_500_000


if __name__ == "__main__":
    main()

"""Runs a real llama.cpp server on a model of random weights: server.py MODEL.gguf

Writes the model if it is not there, prints "listening on http://HOST:PORT", and serves until it is killed. The model's
answers are words in no order, and go on until they reach the request's token limit or stop sequence: it never draws the
end token. The protocol is the server's own.
"""

import os
import random
import struct
import sys
import time

CONTEXT = 65536  # tokens
WIDTH = 64  # of the embedding
HEADS = 4
HIDDEN = 128  # width of the feed-forward layer
SYLLABLES = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te"]

# Types of GGUF values and of tokens in a vocabulary.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return string(v)
    if kind == ARRAY:
        inner, items = v
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], v)


def vocabulary():
    """Tokens and their types: three control tokens, all bytes, and words with a space in front."""
    words = ["\u2581" + a + b for a in SYLLABLES for b in SYLLABLES]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + words
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words)
    return tokens, kinds


def metadata():
    tokens, kinds = vocabulary()
    return [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "random"),
        ("llama.context_length", UINT32, CONTEXT),
        ("llama.embedding_length", UINT32, WIDTH),
        ("llama.block_count", UINT32, 1),
        ("llama.feed_forward_length", UINT32, HIDDEN),
        ("llama.attention.head_count", UINT32, HEADS),
        ("llama.attention.head_count_kv", UINT32, HEADS),
        ("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        ("llama.rope.dimension_count", UINT32, WIDTH // HEADS),
        ("llama.vocab_size", UINT32, len(tokens)),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.scores", ARRAY, (FLOAT32, [0.0] * len(tokens))),
        ("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
        ("tokenizer.ggml.bos_token_id", UINT32, 1),
        ("tokenizer.ggml.eos_token_id", UINT32, 2),
        ("tokenizer.ggml.unknown_token_id", UINT32, 0),
        ("tokenizer.chat_template", STRING, TEMPLATE),
    ]


def tensors():
    """Names, shapes (fastest dimension first) and values. Only words have an output row, and all of these lean the same
    way, so that no other token ever scores higher."""
    draw = random.Random(1)
    tokens, kinds = vocabulary()

    def noise(n, scale=0.3):
        return [draw.gauss(0, scale) for _ in range(n)]

    output = []
    for kind in kinds:
        output += noise(WIDTH, 2.0) if kind == NORMAL else [0.0] * WIDTH
    square = (WIDTH, WIDTH)
    yield "token_embd.weight", (WIDTH, len(tokens)), noise(WIDTH * len(tokens), 1.0)
    yield "blk.0.attn_norm.weight", (WIDTH,), [1.0] * WIDTH
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield f"blk.0.{name}.weight", square, noise(WIDTH * WIDTH)
    yield "blk.0.ffn_norm.weight", (WIDTH,), [1.0] * WIDTH
    yield "blk.0.ffn_gate.weight", (WIDTH, HIDDEN), noise(WIDTH * HIDDEN)
    yield "blk.0.ffn_up.weight", (WIDTH, HIDDEN), noise(WIDTH * HIDDEN)
    yield "blk.0.ffn_down.weight", (HIDDEN, WIDTH), noise(WIDTH * HIDDEN)
    yield "output_norm.weight", (WIDTH,), [1.0] * WIDTH
    yield "output.weight", (WIDTH, len(tokens)), output


def write_model(path):
    """A GGUF file, version 3: header, metadata, tensor table, and tensors at multiples of 32 bytes."""
    keys, table, data = metadata(), b"", b""
    count = 0
    for name, shape, values in tensors():
        table += string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in shape)
        table += struct.pack("<IQ", 0, len(data))  # type 0: 32-bit floats
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(keys))
    head += b"".join(string(k) + struct.pack("<I", kind) + value(kind, v) for k, kind, v in keys) + table
    head += bytes(-len(head) % 32)
    with open(path + ".part", "wb") as f:
        f.write(head + data)
    os.rename(path + ".part", path)


def main():
    path = sys.argv[1]
    if not os.path.exists(path):
        write_model(path)
    import xllamacpp  # after the model, which needs no server

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = CONTEXT
    params.n_parallel = 8
    params.kv_unified = True
    params.cpuparams.n_threads = 1
    params.n_threads_http = 8
    params.warmup = False
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    while True:
        time.sleep(3600)


main()

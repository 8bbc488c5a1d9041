//! The text of every authored graph is in `graphs/`: names, shapes, edits, no values. A change of authoring shows as a
//! change of these files; `EG2_UPDATE_GRAPHS=1 cargo test graphs` writes them anew.

use eg2_convert::analysis;
use eg2_convert::checkpoint::Ledger;
use eg2_convert::ir::{Graph, parse, print};
use eg2_convert::models::gemma_audio::{AudioConfig, Bucket, author};
use eg2_convert::models::laya::{self, LayaConfig, Length};
use eg2_convert::models::reader::{self, ReaderConfig, Tokens};
use std::path::Path;

fn tiny() -> AudioConfig {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/encoder_eg2/config.json");
    AudioConfig::parse(&fs_err::read_to_string(path).unwrap(), "config.json").unwrap()
}

fn encoder(config: &AudioConfig, bucket: usize) -> Graph {
    author(config, Bucket::new(bucket).unwrap(), &Ledger::blueprint(0)).unwrap().0
}

fn reader(config: &ReaderConfig, tokens: usize, words: usize) -> Graph {
    reader::author(config, Tokens::new(tokens).unwrap(), words, &Ledger::blueprint(0)).unwrap().0
}

fn check(name: &str, graph: &Graph) {
    let text = print(graph);
    assert_eq!(&parse(&text).unwrap(), graph, "{name} does not parse back");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs").join(name);
    if std::env::var_os("EG2_UPDATE_GRAPHS").is_some() {
        fs_err::write(&path, &text).unwrap();
    }
    let kept = fs_err::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(
        kept == text,
        "{name} differs from what is authored, first in line {:?}; see the head of this file",
        first.map(|n| n + 1)
    );
}

#[test]
fn encoder_graphs_are_as_authored() {
    check("encoder_tiny_T200.txt", &encoder(&tiny(), 200));
    check("encoder_full_T3000.txt", &encoder(&AudioConfig::embedding_gemma2(), 3000));
}

#[test]
fn reader_graphs_are_as_authored() {
    let guessed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reader_guessed/reader_config.json");
    let guessed = ReaderConfig::parse(&fs_err::read_to_string(guessed).unwrap(), "reader_config.json").unwrap();
    check("reader_guessed_T40.txt", &reader(&guessed, 40, 331));
    check("reader_v2_T750.txt", &reader(&ReaderConfig::v2(), 750, 200_000));
}

#[test]
fn laya_graphs_are_as_authored() {
    let laya = |config: &LayaConfig, length| {
        laya::author(config, Length::new(length).unwrap(), &Ledger::blueprint(0)).unwrap()
    };
    check("laya_own_L48.txt", &laya(&crate::laya::config(&crate::cli::fixture("laya_variants/own")), 48).0);
    let full = LayaConfig::multilingual();
    let (graph, report) = laya(&full, 96);
    check("laya_multilingual_L96.txt", &graph);
    // 170 tensors of the published checkpoint, all of them read.
    assert_eq!((report.tensors.read, report.tensors.parameters), (170, 321_908_998));
    let census = |graph: &Graph| analysis::census(graph);
    let short = census(&graph);
    for length in [192, 1024] {
        assert_eq!(census(&laya(&full, length).0), short, "{length}");
    }
    // 6,390 in the published package. Every linear layer is a convolution, and nothing is reshaped, cast or looked up.
    assert_eq!((short.total(), short.max_rank), (4315, 4));
    assert_eq!(short.ops["conv"], 22 * 4 + 2 * 4 + 2);
    for banned in ["linear", "matmul", "reshape", "cast", "pad"] {
        assert!(!short.ops.contains_key(banned), "{banned}");
    }
}

/// The port has 465 and 639 ops, 87 a layer; see README for the difference.
#[test]
fn ops_of_the_published_readers() {
    let ops = |layers| analysis::census(&reader(&ReaderConfig { layers, ..ReaderConfig::v2() }, 750, 200_000)).total();
    assert_eq!((ops(4), ops(6), ops(6) - ops(5)), (305, 431, 63));
}

/// 304,824,608 of the published tower, 786,432 of `embed_audio`, and the 480 clamp bounds.
#[test]
fn the_full_model_has_the_published_number_of_parameters() {
    let bucket = Bucket::new(1000).unwrap();
    let (_, report) = author(&AudioConfig::embedding_gemma2(), bucket, &Ledger::blueprint(0)).unwrap();
    assert_eq!(report.tensors.parameters, 304_824_608 + 786_432 + 480);
}

/// What the Neural Engine needs of the structure, told from the graph alone.
#[test]
fn the_full_graph_has_the_structure_the_neural_engine_takes() {
    let graph = encoder(&AudioConfig::embedding_gemma2(), 3000);
    for (_, node) in graph.nodes() {
        assert!(node.fact.shape.rank() <= 4, "{} has rank above 4", node.path);
        let in_attention = node.path.contains("self_attn");
        let splits_heads = ["_split", "merged"].iter().any(|end| node.path.ends_with(end));
        assert!(
            !in_attention || node.op.name() != "reshape" || splits_heads,
            "{} reshapes inside attention",
            node.path
        );
    }
}

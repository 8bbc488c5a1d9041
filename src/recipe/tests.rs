use super::*;
use std::error::Error;

const GOOD: &str = r#"
version = 1
model = "encoder"
precision = "fp16"
formats = ["mlpackage", "aimodel"]
buckets = [3000]
split_after = 7

[source]
repository = "google/embeddinggemma-2"
revision = "914f7f89"
[source.sha256]
"model.safetensors" = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

[[compile]]
platform = "macOS"
architectures = ["h16c"]
prefer = "neural-engine"
regions = 1

[gate]
goldens = ["clips"]
limits = { cosine_mean = 0.9999 }
"#;

fn parse(text: &str) -> Result<Recipe, RecipeFault> {
    Recipe::parse(text.into(), "stem", Path::new("folder"))
}

/// The message for a recipe with `old` changed to `new`.
fn fault(old: &str, new: &str) -> String {
    let text = GOOD.replace(old, new);
    assert_ne!(text, GOOD, "{old}");
    let error = parse(&text).unwrap_err();
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

#[test]
fn what_a_recipe_says() {
    let recipe = parse(GOOD).unwrap();
    assert_eq!((recipe.name.as_str(), recipe.sha256), ("stem", Digest::of(GOOD.as_bytes())));
    let gate = recipe.gate.unwrap();
    assert_eq!((gate.goldens, gate.repeats), (vec![PathBuf::from("folder/clips")], 2));
    assert_eq!(gate.limits.cosine_mean, Some(0.9999));
    assert_eq!(recipe.compile[0].regions, Some(Expectation::each(1)));
    assert_eq!((recipe.source.license.as_str(), recipe.source.synthetic), ("Apache-2.0", false));
    let named = parse(&GOOD.replace("regions = 1", "regions = { h16c = 2 }")).unwrap();
    assert_eq!(named.compile[0].regions.as_ref().and_then(|r| r.of("h16c")), Some(2));
}

#[test]
fn a_seeded_reader() {
    let text = "version = 1\nname = \"tiny\"\nmodel = \"reader\"\nprecision = \"fp32\"\nformats = [\"mlpackage\"]\n\
                tokens = 40\n[source]\nseed = 3\nwords = 100\n";
    let recipe = parse(text).unwrap();
    assert_eq!((recipe.name.as_str(), recipe.source.words, recipe.source.synthetic), ("tiny", Some(100), true));
    assert!(recipe.gate.is_none());
    for (old, new, part) in [
        ("words = 100", "words = 0", "source.words is \"0\""),
        ("seed = 3", "", "source.words says nothing"),
        ("words = 100", "checkpoint = \"x\"", "source.checkpoint says nothing"),
        ("fp32", "int8", "precision is \"int8\""),
        ("tokens = 40", "", "tokens is not given"),
        ("tokens = 40", "tokens = 0", "0 is not a number of tokens"),
        ("tokens = 40", "buckets = [40]", "buckets belongs to an encoder; the recipe's model is reader"),
        ("tokens = 40", "tokens = 40\nrelease_name = \"../x\"", "release_name is \"../x\""),
    ] {
        let told = parse(&text.replace(old, new)).unwrap_err().to_string();
        assert!(told.contains(part), "{told}");
    }
}

const DECISIONS: &str = r#"
version = 1
model = "laya"
precision = "fp16"
formats = ["mlpackage"]
lengths = [192, 96]
[source]
checkpoint = "laya"
[gate]
goldens = ["L96"]
questions = ["set.json"]
limits = { probability = 0.01 }
"#;

#[test]
fn a_decision_model() {
    let recipe = parse(DECISIONS).unwrap();
    let Model::Laya { lengths } = &recipe.model else { panic!() };
    assert_eq!(lengths.iter().map(|length| length.get()).collect::<Vec<_>>(), [96, 192]);
    let gate = recipe.gate.unwrap();
    assert_eq!((gate.questions, gate.limits.probability), (vec![PathBuf::from("folder/set.json")], Some(0.01)));
    let told = |old: &str, new: &str| {
        let text = DECISIONS.replace(old, new);
        assert_ne!(text, DECISIONS, "{old}");
        parse(&text).unwrap_err().to_string()
    };
    let all = [
        told("lengths = [192, 96]", ""),
        told("[192, 96]", "[]"),
        told("[192, 96]", "[8]"),
        told("[192, 96]", "[96, 96]"),
        told("lengths = [192, 96]", "tokens = 96"),
        told("lengths = [192, 96]", "lengths = [96]\nbuckets = [96]"),
        told("fp16", "int8"),
        told("checkpoint = \"laya\"", "words = 3"),
        told("checkpoint = \"laya\"", "seed = 3"),
        told("probability = 0.01", "probability = 1.5"),
        told("[gate]", "[gate]\naudio = [\"a.wav\"]"),
        told("[gate]", "[gate]\nwords = \"words.txt\""),
        told("[gate]", "[gate]\ntranscripts = \"t.tsv\""),
        told("[gate]", "[gate]\nwer = \"t.tsv\""),
        told("[gate]", "[gate]\nreader = \"r.mlpackage\""),
        told("[gate]", "[gate]\nencoder = \"e.mlpackage\""),
        fault("buckets = [3000]", "buckets = [3000]\nlengths = [96]"),
        fault("[gate]", "[gate]\nquestions = [\"set.json\"]"),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    lengths is not given; a decision model has one or more
    no length is given, expected a number of tokens such as 96
    8 is not a length from 16 to 2048 tokens (96, 192 and 1024 are published)
    length 96 is given twice
    tokens belongs to a reader; the recipe's model is laya
    buckets belongs to an encoder; the recipe's model is laya
    precision is "int8", expected fp16, fp32 or fp16w32
    source.words says nothing: only a seeded reader's table has rows of choice
    gate says nothing: a decision model is judged with its checkpoint's host, and seeded weights have none
    limit probability is 1.5, expected 0 to 1
    gate.audio belongs to an encoder or a reader; the recipe's model is laya
    gate.words belongs to an encoder or a reader; the recipe's model is laya
    gate.transcripts belongs to an encoder or a reader; the recipe's model is laya
    gate.wer belongs to an encoder or a reader; the recipe's model is laya
    gate.reader belongs to an encoder or a reader; the recipe's model is laya
    gate.encoder belongs to an encoder or a reader; the recipe's model is laya
    lengths belongs to a decision model; the recipe's model is encoder
    gate.questions belongs to a decision model; the recipe's model is encoder
    "#);
    // Seeded weights have no host, and need none where nothing is judged.
    let seeded = DECISIONS.replace("checkpoint = \"laya\"", "seed = 3");
    assert!(parse(seeded.split("[gate]").next().unwrap()).unwrap().source.synthetic);
}

#[test]
fn what_is_no_recipe() {
    insta::assert_snapshot!(fault("version = 1", ""), @"it has no version, expected `version = 1`");
    insta::assert_snapshot!(fault("version = 1", "version = 2"), @"version is 2, expected 1");
    insta::assert_snapshot!(fault("version = 1", "version = \"1\""), @r#"version is "1", expected 1"#);
    insta::assert_snapshot!(fault("buckets", "bukets"), @r"
    TOML parse error at line 6, column 1
      |
    6 | bukets = [3000]
      | ^^^^^^
    unknown field `bukets`, expected one of `version`, `name`, `model`, `precision`, `formats`, `buckets`, `split_after`, `tokens`, `lengths`, `release_name`, `source`, `compile`, `gate`
    ");
    insta::assert_snapshot!(fault("revision", "commit"), @r#"
    TOML parse error at line 11, column 1
       |
    11 | commit = "914f7f89"
       | ^^^^^^
    unknown field `commit`, expected one of `repository`, `revision`, `license`, `license_file`, `synthetic`, `seed`, `words`, `checkpoint`, `config`, `sha256`
    "#);
    insta::assert_snapshot!(fault("cosine_mean", "cosine"), @r"
    TOML parse error at line 23, column 12
       |
    23 | limits = { cosine = 0.9999 }
       |            ^^^^^^
    unknown field `cosine`, expected one of `cosine_mean`, `cosine_min`, `margin`, `flips_percent`, `transcripts_percent`, `wer_points`, `probability`
    ");
    insta::assert_snapshot!(fault("version = 1", "version = 1\nname = \"../up\""), @r#"name is "../up", expected letters, digits, `.`, `_` and `-`, the first a letter or digit, 64 at most, not ending in .kit"#);
    insta::assert_snapshot!(fault("version = 1", "version = 1\nname = \".hidden\""), @r#"name is ".hidden", expected letters, digits, `.`, `_` and `-`, the first a letter or digit, 64 at most, not ending in .kit"#);
    insta::assert_snapshot!(fault("version = 1", "version = 1\nname = \"a.KIT\""), @r#"name is "a.KIT", expected letters, digits, `.`, `_` and `-`, the first a letter or digit, 64 at most, not ending in .kit"#);
    let many = (1..=17).map(|n| (n * 4).to_string()).collect::<Vec<_>>().join(", ");
    insta::assert_snapshot!(fault("[3000]", &format!("[{many}]")), @r#"buckets is "a list of 17", expected 16 at most: the artefact's name has all"#);
    insta::assert_snapshot!(fault("encoder", "decoder"), @r#"model is "decoder", expected encoder, reader or laya"#);
    insta::assert_snapshot!(fault("\"fp16\"", "\"bf16\""), @r#"precision is "bf16", expected fp16, fp32, fp16w32 or int8"#);
    insta::assert_snapshot!(fault("[\"mlpackage\", \"aimodel\"]", "[]"), @"formats is not given; a release has one format or more");
    insta::assert_snapshot!(fault("[\"mlpackage\", \"aimodel\"]", "[\"aimodel\", \"aimodel\"]"), @"formats names aimodel twice");
    insta::assert_snapshot!(fault("[\"mlpackage\", \"aimodel\"]", "[\"mlpackage\"]"), @"compile says nothing: formats has no aimodel to compile");
    insta::assert_snapshot!(fault("[3000]", "[3]"), @"bucket 3 is not a number of frames from 4 to 16384 that four divides (3000 is 30 s)");
    insta::assert_snapshot!(fault("split_after = 7", "split_after = 6"), @"split_after is 6, expected 7 or more: behind fewer layers an fp16 body loses the published accuracy");
    insta::assert_snapshot!(fault("split_after = 7", "tokens = 7"), @"tokens belongs to a reader; the recipe's model is encoder");
    insta::assert_snapshot!(fault("ba7816bf", "ba7816b"), @r#"
    TOML parse error at line 13, column 23
       |
    13 | "model.safetensors" = "ba7816b8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
       |                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    expected 64 hexadecimal digits
    "#);
    insta::assert_snapshot!(fault("[\"h16c\"]", "[]"), @"compile.architectures is not given; a compiled bundle is of one");
    insta::assert_snapshot!(fault("[\"h16c\"]", "[\"m4\"]"), @r#""m4" is not an architecture; they read h16c or h18p: an h, two digits and a letter"#);
    insta::assert_snapshot!(fault("[\"h16c\"]", "[\"h16c\", \"h16c\"]"), @"compile.architectures names h16c twice");
    insta::assert_snapshot!(fault("regions = 1", "regions = { h18p = 1 }"), @r#"compile.regions is "h18p", expected one of compile.architectures"#);
    insta::assert_snapshot!(fault("regions = 1", "regions = -1"), @"
    TOML parse error at line 19, column 11
       |
    19 | regions = -1
       |           ^^
    expected a count of regions, or counts by architecture
    ");
    insta::assert_snapshot!(fault("[gate]", "[[compile]]\nplatform = \"macOS\"\narchitectures = [\"h16c\"]\nprefer = \"gpu\"\n[gate]"), @"compile names h16c twice");
    insta::assert_snapshot!(fault("revision", "license = \"MIT\"\nrevision"), @"source.license_file is not given; a release has its licence's text");
    insta::assert_snapshot!(fault("revision", "license_file = \"x\"\nrevision"), @"source.license_file says nothing: the text of Apache-2.0 is put in as it is");
    insta::assert_snapshot!(fault("macOS", "watchOS"), @r#"compile.platform is "watchOS", expected macOS or iOS"#);
    insta::assert_snapshot!(fault("cosine_mean = 0.9999", "cosine_mean = 2.0"), @"limit cosine_mean is 2, expected -1 to 1");
    insta::assert_snapshot!(fault("goldens = [\"clips\"]", "repeats = 0"), @r#"gate.repeats is "0", expected 1 to 1000"#);
    insta::assert_snapshot!(fault("goldens = [\"clips\"]", "formats = [\"mlpackage\", \"x\"]"), @r#"gate.formats is "x", expected mlpackage or aimodel"#);
}

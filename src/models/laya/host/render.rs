//! Values as the text that the model was trained on: JSON as Python's `json` writes it with `ensure_ascii=False`.
//!
//! Numbers were told apart by the JSON reader: a whole one beyond 64 bits has become a fraction by then, and is written
//! as one.

use serde_json::{Number, Value};

/// The text itself, or `value` as JSON on one line.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// A label as option text: unlike JSON's, Python's words for true and false.
pub fn label(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Null | Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => text(value),
    }
}

/// `value` as JSON on one line, with ", " between entries and ": " behind keys.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    push(value, &mut out);
    out
}

fn push(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&self::number(number)),
        Value::String(text) => push_quoted(text, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                push(item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (i, (key, item)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                push_quoted(key, out);
                out.push_str(": ");
                push(item, out);
            }
            out.push('}');
        }
    }
}

/// Both writers escape quotes, backslashes and what lies below the space, by the same short forms, and nothing else.
fn push_quoted(text: &str, out: &mut String) {
    out.push_str(&Value::from(text).to_string());
}

fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(x) if number.is_f64() => float(x),
        Some(_) | None => number.to_string(),
    }
}

/// The shortest digits that read back as `x`, with an exponent of two digits or more below 1e-4 and from 1e16 on.
fn float(x: f64) -> String {
    let scientific = format!("{x:e}");
    match scientific.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
        Some((digits, power)) if !(-4..16).contains(&power) => {
            format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.unsigned_abs())
        }
        Some(_) | None => {
            let plain = x.to_string();
            if plain.contains('.') { plain } else { plain + ".0" }
        }
    }
}

/// Whether Python's `strip` takes `c` away: Unicode's white space, and four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `text` without white space around it.
pub fn stripped(text: &str) -> &str {
    text.trim_matches(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_as_python_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1.25e-4, "0.000125"),
            (1e-5, "1e-05"),
            (1.5e-5, "1.5e-05"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.2345678901234568e17, "1.2345678901234568e+17"),
            (1e22, "1e+22"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ];
        for (x, want) in cases {
            assert_eq!(json(&Value::from(x)), want);
        }
        assert_eq!(json(&Value::from(u64::MAX)), "18446744073709551615");
        assert_eq!(json(&Value::from(i64::MIN)), "-9223372036854775808");
    }

    #[test]
    fn structure_and_escapes() {
        let value = crate::json::read(
            br#" {"a":[ 1,2.0,null,true,{},[]] ,"\u00e9\n":"\"\\\b\f\r\t\u0001\u007f\ud83d\ude00/"} "#,
        )
        .unwrap();
        let want = "{\"a\": [1, 2.0, null, true, {}, []], \"é\\n\": \"\\\"\\\\\\b\\f\\r\\t\\u0001\u{7f}😀/\"}";
        assert_eq!(json(&value), want);
        assert_eq!(text(&Value::from("as it \"is\"")), "as it \"is\"");
        assert_eq!(
            [label(&Value::from(true)), label(&Value::from(1)), text(&Value::from(true))],
            ["True", "1", "true"]
        );
    }

    #[test]
    fn what_is_stripped() {
        assert_eq!(stripped("\u{1c}\u{a0}\t a b \u{3000}\u{1f}"), "a b");
        assert_eq!(stripped("\u{200b}a\u{1b}"), "\u{200b}a\u{1b}");
    }

    proptest! {
        #[test]
        fn floats_read_back(x in any::<f64>()) {
            prop_assume!(x.is_finite());
            prop_assert_eq!(float(x).parse::<f64>().unwrap().to_bits(), x.to_bits());
        }

        #[test]
        fn text_reads_back(text in ".*") {
            let written = json(&Value::from(text.as_str()));
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        }
    }
}

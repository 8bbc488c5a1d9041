//! What the graph takes, from a sequence or from rows of integers: embeddings, masks, the type's vector and the places of
//! the options.
//!
//! Rows of the table of embeddings are read one at a time; the whole of it is most of a checkpoint.

use super::question::QuestionType;
use crate::checkpoint::{Ledger, ScopeError};
use crate::models::laya::stored::{TABLE, TYPES};
use crate::models::laya::{Encoder, Length, SLOTS, UNSEEN, names};
use crate::tensor::{DType, Fact, SourceError, WeightSource};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// One sequence as the integers that a graph with its lookups inside would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Token ids, as many as the graph is long.
    pub input_ids: Vec<i64>,
    /// 1 for each token of the sequence, 0 past it.
    pub attention_mask: Vec<i64>,
    /// Position of each slot's marker; 0 where there is none.
    pub marker_pos: Vec<i64>,
    /// 1 for each slot with an option, 0 for the others.
    pub marker_mask: Vec<i64>,
    /// Row of the type's vector.
    pub qtype: i64,
}

/// Rows of integers or masks that no graph should be given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum RowError {
    #[error("{row} has {found} entries, expected {expected}")]
    Entries { row: &'static str, found: usize, expected: usize },
    #[error("the sequence has {found} tokens, and the graph is {length} long")]
    Long { found: usize, length: usize },
    #[error("input_ids has {found} at {position}, expected an id below {vocab}")]
    Id { position: usize, found: i64, vocab: usize },
    #[error("{row} has {found} at {position}, expected 0 or 1")]
    Flag { row: &'static str, position: usize, found: i64 },
    #[error("attention_mask is 0 throughout, expected a token that can be seen")]
    NoKey,
    #[error("marker_mask is 0 throughout, expected an option")]
    NoOption,
    #[error("marker_pos has {found} for slot {slot}, expected a position below {length}")]
    Marker { slot: usize, found: i64, length: usize },
    #[error("qtype is {found}, expected 0 for choice, 1 for score or 2 for noul")]
    Type { found: i64 },
    #[error("{mask} has {found} for key {key} and query {query}, expected 0 or {UNSEEN}")]
    Mask { mask: &'static str, key: usize, query: usize, found: f32 },
    #[error("{mask} hides every key from query {query}")]
    Blind { mask: &'static str, query: usize },
}

/// Inputs that cannot be made.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum InputError {
    #[error(transparent)]
    Row(#[from] RowError),
    #[error(transparent)]
    Tensor(#[from] ScopeError),
    #[error(transparent)]
    Source(#[from] SourceError),
}

type Checked<T> = Result<T, InputError>;

impl Rows {
    /// The rows of a sequence of tokens `ids`, with an option at each of `markers`, in a graph of `length`, filled up
    /// with `pad`.
    ///
    /// # Errors
    /// The sequence is longer, or has more options than slots.
    pub fn new(ids: &[u32], markers: &[usize], kind: QuestionType, pad: u32, length: Length) -> Result<Rows, RowError> {
        let (length, found, options) = (length.get(), ids.len(), markers.len());
        if found > length {
            return Err(RowError::Long { found, length });
        }
        if options > SLOTS {
            return Err(RowError::Entries { row: "markers", found: options, expected: SLOTS });
        }
        let filled = |values: Vec<i64>, with: i64, length: usize| {
            values.into_iter().chain(std::iter::repeat(with)).take(length).collect::<Vec<i64>>()
        };
        Ok(Rows {
            input_ids: filled(ids.iter().map(|id| i64::from(*id)).collect(), i64::from(pad), length),
            attention_mask: filled(vec![1; found], 0, length),
            marker_pos: filled(markers.iter().map(|at| *at as i64).collect(), 0, SLOTS),
            marker_mask: filled(vec![1; options], 0, SLOTS),
            qtype: kind.index() as i64,
        })
    }

    /// Checks every entry for a graph of `length` over a table of `vocab` rows.
    ///
    /// # Errors
    /// A row has another number of entries, or an entry is out of its range.
    pub fn check(&self, length: Length, vocab: usize) -> Result<(), RowError> {
        let length = length.get();
        let rows: [(&'static str, &[i64], usize); 4] = [
            ("input_ids", &self.input_ids, length),
            ("attention_mask", &self.attention_mask, length),
            ("marker_pos", &self.marker_pos, SLOTS),
            ("marker_mask", &self.marker_mask, SLOTS),
        ];
        for (row, entries, expected) in rows {
            if entries.len() != expected {
                return Err(RowError::Entries { row, found: entries.len(), expected });
            }
        }
        for (row, entries) in [("attention_mask", &self.attention_mask), ("marker_mask", &self.marker_mask)] {
            if let Some((position, found)) =
                entries.iter().copied().enumerate().find(|(_, flag)| !matches!(flag, 0 | 1))
            {
                return Err(RowError::Flag { row, position, found });
            }
        }
        for (position, found) in self.input_ids.iter().copied().enumerate() {
            if below(found, vocab).is_none() {
                return Err(RowError::Id { position, found, vocab });
            }
        }
        if !self.attention_mask.contains(&1) {
            return Err(RowError::NoKey);
        }
        if !self.marker_mask.contains(&1) {
            return Err(RowError::NoOption);
        }
        for (slot, found) in self.marker_pos.iter().copied().enumerate() {
            if below(found, length).is_none() {
                return Err(RowError::Marker { slot, found, length });
            }
        }
        if below(self.qtype, QuestionType::ALL.len()).is_none() {
            return Err(RowError::Type { found: self.qtype });
        }
        Ok(())
    }

    /// Whether each position belongs to the sequence.
    pub fn valid(&self) -> Vec<bool> {
        self.attention_mask.iter().map(|flag| *flag == 1).collect()
    }
}

fn below(value: i64, bound: usize) -> Option<usize> {
    usize::try_from(value).ok().filter(|value| *value < bound)
}

/// One input of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name; see [`names`].
    pub name: &'static str,
    /// f32, and its shape.
    pub fact: Fact,
    /// Its values, row-major.
    pub values: Vec<f32>,
}

/// Every input of the graph, in the order of [`names::INPUTS`].
#[derive(Clone, Debug, PartialEq)]
pub struct Features(Vec<Feature>);

impl Features {
    /// The inputs for `rows`, with embeddings and type vector from `source`.
    ///
    /// # Errors
    /// The rows do not [`check`](Rows::check), or a tensor is absent, misshapen or unreadable.
    pub fn new(rows: &Rows, encoder: &Encoder, length: Length, source: &dyn WeightSource) -> Checked<Features> {
        rows.check(length, encoder.vocab)?;
        let ledger = Ledger::new(source);
        let (c, l) = (encoder.hidden, length.get());
        ledger.root().tensor(TABLE, &[encoder.vocab, c])?;
        ledger.root().tensor(TYPES, &[QuestionType::ALL.len(), c])?;
        let [full, local] = masks(&rows.valid(), encoder.window);
        let mut types = vec![0f32; c];
        source.read_f32(TYPES, below(rows.qtype, QuestionType::ALL.len()).unwrap_or_default() * c, &mut types)?;
        let feature = |name, dims: [usize; 4], values| Feature { name, fact: Fact::new(DType::F32, dims), values };
        Ok(Features(vec![
            feature(names::EMBEDDINGS, [1, c, 1, l], embeddings(rows, encoder, source)?),
            feature(names::FULL_MASK, [1, l, 1, l], full),
            feature(names::LOCAL_MASK, [1, l, 1, l], local),
            feature(names::TYPE_VECTORS, [1, c, 1, 1], types),
            feature(names::MARKER_MAP, [1, l, 1, SLOTS], marker_map(rows, l)),
        ]))
    }

    /// Each input.
    pub fn iter(&self) -> impl Iterator<Item = &Feature> {
        self.0.iter()
    }

    /// Each input, to be taken.
    pub fn into_vec(self) -> Vec<Feature> {
        self.0
    }
}

/// `[C, L]`: the row of each id as a column. What is read once serves each place of the id, the padding's above all.
fn embeddings(rows: &Rows, encoder: &Encoder, source: &dyn WeightSource) -> Checked<Vec<f32>> {
    let (c, l) = (encoder.hidden, rows.input_ids.len());
    let mut read: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
    let mut values = vec![0f32; c * l];
    for (position, id) in rows.input_ids.iter().enumerate() {
        let Some(id) = below(*id, encoder.vocab) else { continue };
        let row = match read.entry(id) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(place) => {
                let mut row = vec![0f32; c];
                source.read_f32(TABLE, id * c, &mut row)?;
                place.insert(row)
            }
        };
        let column = values.iter_mut().skip(position).step_by(l);
        column.zip(row.iter()).for_each(|(to, from)| *to = *from);
    }
    Ok(values)
}

/// The masks of global and of local layers, `[key, query]`: 0 where a query sees a key, [`UNSEEN`] elsewhere. No query
/// sees a key that is not `valid`; one within half of `window` tokens is near. A query past the sequence sees as a global
/// one does, or it would see nothing.
pub fn masks(valid: &[bool], window: usize) -> [Vec<f32>; 2] {
    let mask = |sees: &dyn Fn(usize, usize) -> bool| {
        let mut values = Vec::with_capacity(valid.len() * valid.len());
        for (key, there) in valid.iter().enumerate() {
            let seen = (0..valid.len()).map(|query| if *there && sees(key, query) { 0.0 } else { UNSEEN });
            values.extend(seen);
        }
        values
    };
    let near = |key: usize, query: usize| key.abs_diff(query) <= window / 2 || valid.get(query) == Some(&false);
    [mask(&|_, _| true), mask(&near)]
}

/// `[L, 32]`: 1 at the marker of each slot with an option.
fn marker_map(rows: &Rows, length: usize) -> Vec<f32> {
    let mut values = vec![0f32; length * SLOTS];
    for (slot, (at, there)) in rows.marker_pos.iter().zip(&rows.marker_mask).enumerate() {
        let place = below(*at, length).filter(|_| *there == 1).map(|at| at * SLOTS + slot);
        if let Some(value) = place.and_then(|place| values.get_mut(place)) {
            *value = 1.0;
        }
    }
    values
}

/// Checks a mask `[key, query]` that comes from elsewhere, for a graph of `length`.
///
/// # Errors
/// It has another number of entries, one is neither 0 nor [`UNSEEN`], or a query sees no key.
pub fn check_mask(mask: &'static str, values: &[f32], length: Length) -> Result<(), RowError> {
    let length = length.get();
    if values.len() != length * length {
        return Err(RowError::Entries { row: mask, found: values.len(), expected: length * length });
    }
    if let Some(at) = values.iter().position(|value| *value != 0.0 && *value != UNSEEN) {
        let found = values.get(at).copied().unwrap_or_default();
        return Err(RowError::Mask { mask, key: at / length, query: at % length, found });
    }
    let sees = |query: usize| values.iter().skip(query).step_by(length).any(|value| *value == 0.0);
    match (0..length).find(|query| !sees(*query)) {
        Some(query) => Err(RowError::Blind { mask, query }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::laya::LayaConfig;
    use crate::tensor::Memory;
    use half::{bf16, f16};

    const LENGTH: usize = 16;

    fn length() -> Length {
        Length::new(LENGTH).unwrap()
    }

    fn encoder() -> Encoder {
        Encoder { vocab: 8, hidden: 4, heads: 1, window: 4, ..LayaConfig::multilingual().encoder }
    }

    /// Six tokens, options at 2 and 4.
    fn rows() -> Rows {
        let fill = |given: &[i64], length: usize| {
            let mut row = given.to_vec();
            row.resize(length, 0);
            row
        };
        Rows {
            input_ids: fill(&[2, 3, 4, 5, 4, 7], LENGTH),
            attention_mask: fill(&[1; 6], LENGTH),
            marker_pos: fill(&[2, 4], SLOTS),
            marker_mask: fill(&[1, 1], SLOTS),
            qtype: 1,
        }
    }

    fn source(dtype: DType) -> Memory {
        let mut memory = Memory::default();
        for (name, count) in [(TABLE, 32), (TYPES, 12)] {
            let values = (0..count).map(|i| i as f32 + 0.25);
            let bytes: Vec<u8> = if dtype == DType::F16 {
                values.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect()
            } else if dtype == DType::BF16 {
                values.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect()
            } else {
                values.flat_map(f32::to_le_bytes).collect()
            };
            memory.0.insert(name.into(), (Fact::new(dtype, [count / 4, 4]), bytes));
        }
        memory
    }

    fn features(dtype: DType) -> Features {
        Features::new(&rows(), &encoder(), length(), &source(dtype)).unwrap()
    }

    #[test]
    fn what_the_graph_takes() {
        let features = features(DType::F32);
        let told: Vec<String> = features.iter().map(|f| format!("{} {}", f.name, f.fact)).collect();
        insta::assert_snapshot!(told.join("\n"), @"
        embeddings f32[1,4,1,16]
        full_mask f32[1,16,1,16]
        local_mask f32[1,16,1,16]
        type_vectors f32[1,4,1,1]
        marker_map f32[1,16,1,32]
        ");
        assert!(features.iter().all(|f| f.values.len() == f.fact.shape.elements()));
        assert_eq!(features.iter().map(|f| f.name).collect::<Vec<_>>(), names::INPUTS);
        let [embeddings, .., types, markers] = features.0.as_slice() else { panic!() };
        // Channel 1 of tokens 2, 3, 4, 5, 4, 7, then of token 0.
        assert_eq!(embeddings.values[LENGTH..LENGTH + 7], [9.25, 13.25, 17.25, 21.25, 17.25, 29.25, 1.25]);
        assert_eq!(types.values, [4.25, 5.25, 6.25, 7.25]);
        let ones: Vec<usize> = (0..LENGTH * SLOTS).filter(|i| markers.values[*i] != 0.0).collect();
        assert_eq!(ones, [2 * SLOTS, 4 * SLOTS + 1]);
        assert_eq!(markers.values[2 * SLOTS], 1.0);
    }

    #[test]
    fn every_dtype_is_widened() {
        assert_eq!(features(DType::F16), features(DType::F32));
        // bf16 has no 17.25.
        let of = |dtype| features(dtype).iter().next().unwrap().values[LENGTH];
        assert_eq!([of(DType::BF16), of(DType::F32)], [bf16::from_f32(9.25).to_f32(), 9.25]);
        let mut whole = source(DType::F32);
        whole.0.get_mut(TABLE).unwrap().0.dtype = DType::I32;
        assert!(Features::new(&rows(), &encoder(), length(), &whole).is_err());
    }

    #[test]
    fn masks_by_key_and_query() {
        let valid = [true, true, true, true, false, false];
        let [full, local] = masks(&valid, 2);
        let shown = |mask: &[f32]| {
            let line = |row: &[f32]| row.iter().map(|x| if *x == 0.0 { '.' } else { 'x' }).collect::<String>();
            mask.chunks(6).map(line).collect::<Vec<_>>().join("\n")
        };
        insta::assert_snapshot!(format!("{}\n\n{}", shown(&full), shown(&local)), @"
        ......
        ......
        ......
        ......
        xxxxxx
        xxxxxx

        ..xx..
        ...x..
        x.....
        xx....
        xxxxxx
        xxxxxx
        ");
        assert_eq!(masks(&[true; 3], 5)[0], masks(&[true; 3], 5)[1], "an odd window is halved down");
        assert_ne!(masks(&[true; 3], 3)[0], masks(&[true; 3], 3)[1]);
        assert_eq!(f16::from_f32(UNSEEN).to_f32(), UNSEEN, "the same number in fp16");
    }

    #[test]
    fn rows_that_are_refused() {
        let refused = |change: &dyn Fn(&mut Rows)| {
            let mut rows = rows();
            change(&mut rows);
            rows.check(length(), 8).unwrap_err().to_string()
        };
        let all = [
            refused(&|r| r.input_ids.truncate(3)),
            refused(&|r| r.marker_pos.push(0)),
            refused(&|r| r.input_ids[5] = 8),
            refused(&|r| r.input_ids[15] = -1),
            refused(&|r| r.attention_mask[1] = 2),
            refused(&|r| r.marker_mask[31] = -1),
            refused(&|r| r.attention_mask.fill(0)),
            refused(&|r| r.marker_mask.fill(0)),
            refused(&|r| r.marker_pos[1] = 16),
            refused(&|r| r.marker_pos[31] = -1),
            refused(&|r| r.qtype = 3),
            refused(&|r| r.qtype = -1),
        ];
        insta::assert_snapshot!(all.join("\n"), @"
        input_ids has 3 entries, expected 16
        marker_pos has 33 entries, expected 32
        input_ids has 8 at 5, expected an id below 8
        input_ids has -1 at 15, expected an id below 8
        attention_mask has 2 at 1, expected 0 or 1
        marker_mask has -1 at 31, expected 0 or 1
        attention_mask is 0 throughout, expected a token that can be seen
        marker_mask is 0 throughout, expected an option
        marker_pos has 16 for slot 1, expected a position below 16
        marker_pos has -1 for slot 31, expected a position below 16
        qtype is 3, expected 0 for choice, 1 for score or 2 for noul
        qtype is -1, expected 0 for choice, 1 for score or 2 for noul
        ");
        assert!(rows().check(length(), 8).is_ok());
        let mut narrow = encoder();
        narrow.hidden = 6;
        let misfit = Features::new(&rows(), &narrow, length(), &source(DType::F32)).unwrap_err();
        insta::assert_snapshot!(misfit, @"tensor encoder.embeddings.tok_embeddings.weight in memory is f32[8,4], expected f64, f32, f16 or bf16 of shape [8,6]");
    }

    #[test]
    fn masks_that_are_refused() {
        let valid: Vec<bool> = (0..LENGTH).map(|i| i < 6).collect();
        let [full, local] = masks(&valid, 4);
        for mask in [&full, &local] {
            assert!(check_mask(names::FULL_MASK, mask, length()).is_ok());
        }
        let refused = |change: &dyn Fn(&mut Vec<f32>)| {
            let mut mask = local.clone();
            change(&mut mask);
            check_mask(names::LOCAL_MASK, &mask, length()).unwrap_err().to_string()
        };
        let all = [
            refused(&|m| m.truncate(9)),
            refused(&|m| m[LENGTH + 2] = -1e9),
            refused(&|m| m[3] = f32::NAN),
            refused(&|m| (0..LENGTH).for_each(|key| m[key * LENGTH + 5] = UNSEEN)),
        ];
        insta::assert_snapshot!(all.join("\n"), @"
        local_mask has 9 entries, expected 256
        local_mask has -1000000000 for key 1 and query 2, expected 0 or -10000
        local_mask has NaN for key 0 and query 3, expected 0 or -10000
        local_mask hides every key from query 5
        ");
    }
}

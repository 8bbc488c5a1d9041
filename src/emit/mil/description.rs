//! What a package says of itself: feature descriptions and metadata.

use super::codes::codes;
use super::schema::{ArrayFeatureType, FeatureDescription, FeatureType, Metadata};
use crate::tensor::Fact;
use std::collections::BTreeMap;

/// Text for people, written into the package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// What the model does, in a sentence.
    pub short: String,
    /// Version of the model.
    pub version: String,
    /// Who made the weights.
    pub author: String,
    /// License of the weights.
    pub license: String,
    /// Anything else, by key: the source revision, for one.
    pub user_defined: BTreeMap<String, String>,
    /// A sentence for each input and output, by its name; none is needed.
    pub features: BTreeMap<String, String>,
}

impl Description {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            short_description: self.short.clone(),
            version_string: self.version.clone(),
            author: self.author.clone(),
            license: self.license.clone(),
            user_defined: self.user_defined.clone(),
        }
    }

    /// The feature of that name, or `None` where no feature can be such a value: a scalar loses its shape when it is
    /// saved, and few dtypes may cross the border of a model.
    pub(super) fn feature(&self, name: &str, fact: &Fact) -> Option<FeatureDescription> {
        let data_type = codes(fact.dtype)?.feature?;
        let shape: Vec<i64> = fact.shape.dims().iter().map(|d| i64::try_from(*d).ok()).collect::<Option<_>>()?;
        let array = ArrayFeatureType { shape, data_type };
        (fact.shape.rank() > 0).then(|| FeatureDescription {
            name: name.into(),
            short_description: self.features.get(name).cloned().unwrap_or_default(),
            r#type: Some(FeatureType { multi_array_type: Some(array) }),
        })
    }
}

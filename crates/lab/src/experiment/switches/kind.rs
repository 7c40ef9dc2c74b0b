//! Names of kinds, shared by switches and guests.

/// Implements the name of a tuple type over a static kind with `name` and `about`, for CLI, JSON
/// and tables. The type has a list `ALL`.
macro_rules! named {
    ($type:ident, $what:literal) => {
        impl $type {
            /// Name as in the CLI and JSON.
            pub fn as_str(self) -> &'static str {
                self.0.name
            }

            /// Description for help texts.
            pub fn about(self) -> &'static str {
                self.0.about
            }

            /// Names of all kinds that meet a condition.
            pub fn names(of: impl Fn($type) -> bool) -> String {
                let names = $type::ALL.into_iter().filter(|kind| of(*kind)).map($type::as_str);
                names.collect::<Vec<_>>().join(", ")
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &$type) -> bool {
                self.as_str() == other.as_str()
            }
        }

        impl Eq for $type {}

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                let found = $type::ALL.into_iter().find(|kind| kind.as_str() == text);
                let names = || $type::names(|_| true);
                found.ok_or_else(|| format!("unknown {}; expected one of {}", $what, names()))
            }
        }
    };
}

pub(super) use named;

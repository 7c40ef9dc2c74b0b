//! Macro that declares all kinds of attachments.

/// Declares each kind by its settings, its name in the document, and the field that the short form
/// sets. The first kind is the default.
macro_rules! declare_kinds {
    ($(#[doc = $doc:literal] $kind:ident = $word:literal, $place:ident;)+) => {
        /// Connection of a guest to its adapter, or of an uplink to the wire.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(remote = "Self", tag = "kind")]
        pub enum Attachment {
            $(#[doc = $doc] #[serde(rename = $word)] $kind($kind),)+
        }

        /// Kind of attachment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum AttachmentKind {
            $(#[doc = $doc] $kind,)+
        }

        impl AttachmentKind {
            /// All kinds.
            pub const ALL: [AttachmentKind; [$($word),+].len()] = [$(AttachmentKind::$kind),+];

            /// Name in the document.
            pub fn word(self) -> &'static str {
                match self {
                    $(AttachmentKind::$kind => $word,)+
                }
            }

            /// Field that the short form sets.
            pub fn place_field(self) -> &'static str {
                match self {
                    $(AttachmentKind::$kind => stringify!($place),)+
                }
            }

            /// Schema of the settings.
            pub(super) fn fields(self) -> RefOr<Schema> {
                match self {
                    $(AttachmentKind::$kind => $kind::schema(),)+
                }
            }
        }

        impl Attachment {
            /// Kind of the attachment.
            pub fn kind(&self) -> AttachmentKind {
                match self {
                    $(Attachment::$kind(_) => AttachmentKind::$kind,)+
                }
            }

            /// Socket, interface, file or name: the value of the kind's [place
            /// field](AttachmentKind::place_field).
            pub fn place(&self) -> &str {
                match self {
                    $(Attachment::$kind(settings) => &settings.$place,)+
                }
            }
        }

        /// Schemas that the settings refer to.
        pub(super) fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            $($kind::schemas(schemas);)+
        }

        /// Pattern of the short form.
        pub(in super::super) const SHORT_FORM: &str =
            concat!("^(" $(, $word,)"|"+ "):.+$");
    };
}

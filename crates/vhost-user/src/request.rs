//! The requests and their names.
//!
//! Specification: vhost-user.rst, "Front-end message types".

use std::fmt;

macro_rules! requests {
    ($(#[$doc:meta])* $kind:ident: $($name:ident = $code:literal, $text:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $kind {
            $(#[doc = concat!("`", $text, "`, request ", $code, ".")] $name = $code,)*
        }

        impl $kind {
            /// Every request, in the order of the codes.
            pub const ALL: &'static [$kind] = &[$($kind::$name),*];

            /// The request with this code.
            pub fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some($kind::$name),)*
                    _ => None,
                }
            }

            /// The specification's name without the prefix `VHOST_USER_`.
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$name => $text,)*
                }
            }

            /// The code on the wire.
            pub fn code(self) -> u32 {
                self as u32
            }
        }
    };
}

requests! {
    /// Requests from the back-end, over the socket of `SET_BACKEND_REQ_FD`.
    BackendRequest:
    IotlbMsg = 1, "BACKEND_IOTLB_MSG";
    ConfigChangeMsg = 2, "BACKEND_CONFIG_CHANGE_MSG";
    VringHostNotifierMsg = 3, "BACKEND_VRING_HOST_NOTIFIER_MSG";
    VringCall = 4, "BACKEND_VRING_CALL";
    VringErr = 5, "BACKEND_VRING_ERR";
    SharedObjectAdd = 6, "BACKEND_SHARED_OBJECT_ADD";
    SharedObjectRemove = 7, "BACKEND_SHARED_OBJECT_REMOVE";
    SharedObjectLookup = 8, "BACKEND_SHARED_OBJECT_LOOKUP";
    ShmemMap = 9, "BACKEND_SHMEM_MAP";
    ShmemUnmap = 10, "BACKEND_SHMEM_UNMAP";
}

requests! {
    /// Requests from the front-end, with the specification's numbers.
    Request:
    GetFeatures = 1, "GET_FEATURES";
    SetFeatures = 2, "SET_FEATURES";
    SetOwner = 3, "SET_OWNER";
    ResetOwner = 4, "RESET_OWNER";
    SetMemTable = 5, "SET_MEM_TABLE";
    SetLogBase = 6, "SET_LOG_BASE";
    SetLogFd = 7, "SET_LOG_FD";
    SetVringNum = 8, "SET_VRING_NUM";
    SetVringAddr = 9, "SET_VRING_ADDR";
    SetVringBase = 10, "SET_VRING_BASE";
    GetVringBase = 11, "GET_VRING_BASE";
    SetVringKick = 12, "SET_VRING_KICK";
    SetVringCall = 13, "SET_VRING_CALL";
    SetVringErr = 14, "SET_VRING_ERR";
    GetProtocolFeatures = 15, "GET_PROTOCOL_FEATURES";
    SetProtocolFeatures = 16, "SET_PROTOCOL_FEATURES";
    GetQueueNum = 17, "GET_QUEUE_NUM";
    SetVringEnable = 18, "SET_VRING_ENABLE";
    SendRarp = 19, "SEND_RARP";
    NetSetMtu = 20, "NET_SET_MTU";
    SetBackendReqFd = 21, "SET_BACKEND_REQ_FD";
    IotlbMsg = 22, "IOTLB_MSG";
    SetVringEndian = 23, "SET_VRING_ENDIAN";
    GetConfig = 24, "GET_CONFIG";
    SetConfig = 25, "SET_CONFIG";
    CreateCryptoSession = 26, "CREATE_CRYPTO_SESSION";
    CloseCryptoSession = 27, "CLOSE_CRYPTO_SESSION";
    PostcopyAdvise = 28, "POSTCOPY_ADVISE";
    PostcopyListen = 29, "POSTCOPY_LISTEN";
    PostcopyEnd = 30, "POSTCOPY_END";
    GetInflightFd = 31, "GET_INFLIGHT_FD";
    SetInflightFd = 32, "SET_INFLIGHT_FD";
    GpuSetSocket = 33, "GPU_SET_SOCKET";
    ResetDevice = 34, "RESET_DEVICE";
    VringKick = 35, "VRING_KICK";
    GetMaxMemSlots = 36, "GET_MAX_MEM_SLOTS";
    AddMemReg = 37, "ADD_MEM_REG";
    RemMemReg = 38, "REM_MEM_REG";
    SetStatus = 39, "SET_STATUS";
    GetStatus = 40, "GET_STATUS";
    GetSharedObject = 41, "GET_SHARED_OBJECT";
    SetDeviceStateFd = 42, "SET_DEVICE_STATE_FD";
    CheckDeviceState = 43, "CHECK_DEVICE_STATE";
    GetShmemConfig = 44, "GET_SHMEM_CONFIG";
}

impl Request {
    /// Returns `true` if the reply has a body of its own. An acknowledgement cannot replace it: the
    /// front-end would take its number for the value it asked for.
    pub fn has_reply(self) -> bool {
        use Request::*;
        matches!(
            self,
            GetFeatures
                | GetProtocolFeatures
                | GetVringBase
                | GetQueueNum
                | SetLogBase
                | GetConfig
                | CreateCryptoSession
                | PostcopyAdvise
                | PostcopyEnd
                | GetInflightFd
                | GetMaxMemSlots
                | GetStatus
                | GetSharedObject
                | SetDeviceStateFd
                | CheckDeviceState
                | GetShmemConfig
        )
    }
}

/// Name of a request code for logs and errors, also of an unknown one: `SET_FEATURES (2)`,
/// `unknown request 99`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestName(pub u32);

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Request::from_code(self.0) {
            Some(request) => write!(f, "{} ({})", request.name(), self.0),
            None => write!(f, "unknown request {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_agree() {
        for (at, &request) in Request::ALL.iter().enumerate() {
            assert_eq!(request.code(), at as u32 + 1);
            assert_eq!(Request::from_code(request.code()), Some(request));
        }
        assert_eq!(RequestName(5).to_string(), "SET_MEM_TABLE (5)");
        assert_eq!(RequestName(99).to_string(), "unknown request 99");
    }
}

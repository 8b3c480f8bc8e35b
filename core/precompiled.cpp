// SPDX-License-Identifier: Apache-2.0
// Nothing: the targets that precompile headers for others need a file to compile.

"""redif"""

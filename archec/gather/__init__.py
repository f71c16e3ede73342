"""gather"""
